// SPDX-License-Identifier: Apache-2.0
// Every op as a function: formula, shapes, errors; a header for each family. Every error names the op, the input, its
// value, the value that was needed, and the scope.
#pragma once

#include "paoding/ops/activation.h"
#include "paoding/ops/attention.h"
#include "paoding/ops/bitwise.h"
#include "paoding/ops/collective.h"
#include "paoding/ops/comparison.h"
#include "paoding/ops/control.h"
#include "paoding/ops/convolution.h"
#include "paoding/ops/elementwise.h"
#include "paoding/ops/function.h"
#include "paoding/ops/index.h"
#include "paoding/ops/loss.h"
#include "paoding/ops/mask.h"
#include "paoding/ops/norm.h"
#include "paoding/ops/product.h"
#include "paoding/ops/random.h"
#include "paoding/ops/recurrent.h"
#include "paoding/ops/reduction.h"
#include "paoding/ops/shape.h"
#include "paoding/ops/softmax.h"
#include "paoding/ops/sort.h"
