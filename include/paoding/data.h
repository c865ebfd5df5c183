// SPDX-License-Identifier: Apache-2.0
// From files to batches: readers, vocabularies, buckets, prefetching, metrics.
#pragma once

#include "paoding/data/batches.h"
#include "paoding/data/content_hash.h"
#include "paoding/data/corpora.h"
#include "paoding/data/metrics.h"
#include "paoding/data/sentence_pieces.h"
#include "paoding/data/vocabulary.h"
