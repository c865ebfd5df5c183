// SPDX-License-Identifier: Apache-2.0
// Every task, for the list in task.cpp.
#pragma once

#include <memory>

#include "models/task.h"

namespace paoding::models {

std::unique_ptr<Task> make_fashion();
std::unique_ptr<Task> make_g2p();
std::unique_ptr<Task> make_gpt();
std::unique_ptr<Task> make_lm();
std::unique_ptr<Task> make_mlm();
std::unique_ptr<Task> make_translate();

}  // namespace paoding::models
