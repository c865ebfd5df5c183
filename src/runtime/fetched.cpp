// SPDX-License-Identifier: Apache-2.0
#include "runtime/fetched.h"

#include <utility>
#include <vector>

namespace paoding {

bool Fetched::is_there() const { return state_->read == nullptr || state_->read->is_there(); }

const Tensor& Fetched::value() const {
  if (const auto read = std::exchange(state_->read, nullptr)) {
    try {
      std::vector<Tensor> all = read->values();
      const std::size_t taken = all.size() == 1 ? 0 : 1 + chosen_of(all[0], all.size() - 1);
      state_->value = std::move(all[taken]);
    } catch (...) {
      state_->error = std::current_exception();
    }
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return *state_->value;
}

}  // namespace paoding
