// SPDX-License-Identifier: Apache-2.0
// Shadows of the parameters of a store, which programs in mixed precision read in place of them (graph/shadow.h): made
// when a program first wants them, and made anew when something else than such a program has written the parameter.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/executor.h"

namespace paoding {

struct Shadow {
  std::string of;
  Type type;
  std::unique_ptr<DeviceBuffer> buffer;
  bool is_fresh = false;  // it holds the parameter's value
};

/// The content of a shadow in `dtype` for a parameter's f32 value.
Tensor rounded_shadow(const Tensor& value, DType dtype);

class Shadows {
 public:
  /// The shadow of `of`, an f32 parameter.
  Shadow& at(const std::string& name, const std::string& of, const Type& type, const Device& device);
  /// The parameter was written, and nothing that holds it in 16 bits.
  void outdate(std::string_view of);
  /// Rounds the values of those that are not fresh, which `value_of` gives.
  void refresh(const std::vector<Shadow*>& wanted, const std::function<Tensor(const std::string& of)>& value_of);

  /// The shadows that a program which writes parameters and some of their shadows leaves outdated.
  class Outdated {
   public:
    explicit Outdated(std::set<std::string> written = {}) : written_(std::move(written)) {}
    /// Called after a run.
    void mark(Shadows& shadows);

   private:
    std::set<std::string> written_;  // names of parameters and shadows
    std::size_t seen_ = 0;           // shadows that were there when the list was made
    std::vector<Shadow*> list_;
  };

 private:
  std::mutex mutex_;
  std::map<std::string, Shadow> all_;  // none goes
};

}  // namespace paoding
