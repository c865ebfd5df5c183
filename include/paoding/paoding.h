// SPDX-License-Identifier: Apache-2.0
// Everything a program that uses paoding needs.
#pragma once

#include "paoding/autodiff.h"
#include "paoding/cancellation.h"
#include "paoding/checkpoint.h"
#include "paoding/data.h"
#include "paoding/debug.h"
#include "paoding/error.h"
#include "paoding/graph.h"
#include "paoding/io.h"
#include "paoding/nn.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"
#include "paoding/printable.h"
#include "paoding/profile.h"
#include "paoding/program.h"
#include "paoding/programs.h"
#include "paoding/recurrent_weights.h"
#include "paoding/scalar.h"
#include "paoding/tensor.h"
#include "paoding/types.h"
