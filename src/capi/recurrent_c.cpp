// SPDX-License-Identifier: Apache-2.0
// The C interface of recurrent layers (paoding/recurrent.h): plans of two graphs on the caller's memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/slot_alignment.h"
#include "runtime/placed/placed_plan.h"
#include "runtime/recurrent_layer.h"

namespace paoding {
namespace {

thread_local std::string last_error;

pd_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::unsupported: return PD_ERROR_UNSUPPORTED;
    case ErrorKind::device: return PD_ERROR_DEVICE;
    default: return PD_ERROR_ARGUMENT;
  }
}

// No exception leaves the interface.
template <class Work>
pd_status reported(const char* what, const Work& work) {
  const auto failed = [&](pd_status status, const char* why) {
    try {
      last_error = fmt::format("{}: {}", what, why);
    } catch (...) {
      last_error.clear();
    }
    return status;
  };
  try {
    work();
    return PD_OK;
  } catch (const Error& error) {
    return failed(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(PD_ERROR_MEMORY, "there is no memory left");
  } catch (const std::exception& error) {
    return failed(PD_ERROR_INTERNAL, error.what());
  }
}

// The arguments of a call, in this order.
constexpr std::array<std::string_view, 13> kForward = {"x",      "w",      "u",      "b",     "h0",    "c0",  "lengths",
                                                       "states", "last_h", "last_c", "gates", "cells", "b_hh"};
constexpr std::array<std::string_view, 18> kBackward = {"x",     "w",     "u",        "h0",       "lengths",  "states",
                                                        "gates", "cells", "d_states", "d_last_h", "d_last_c", "d_x",
                                                        "d_w",   "d_u",   "d_b",      "d_h0",     "d_c0",     "d_b_hh"};

// One direction: a plan, and the places of its operands and results in a call. Arguments that the caller leaves out lie
// after the plan's own workspace.
class Direction {
 public:
  Direction(const char* name, const Graph& graph, const pd_recurrent_layer& layer, const Device& device,
            std::span<const std::string_view> given)
      : device_(device), placed_(PlacedPlan::make(name, graph, device, {.allow_tf32 = layer.allow_tf32 != 0})) {
    bytes_ = slot_bytes(placed_->workspace_bytes());
    const auto add = [&](const std::string& name, std::int64_t bytes) {
      const auto at = std::find(given.begin(), given.end(), name) - given.begin();
      places_.push_back({name, static_cast<std::size_t>(at), bytes, bytes_});
      if (may_be_absent(name)) bytes_ += slot_bytes(bytes);
    };
    for (const auto& [name, slot] : plan().parameters) add(name, plan().slots[static_cast<std::size_t>(slot)].bytes);
    reads_ = places_.size();
    for (const Plan::Fetch& fetch : plan().fetches) {
      const Type& type = fetch.operand.layout.type;
      add(fetch.name, type.shape.elements() * size_bytes(type.dtype));
    }
    memory_.resize(places_.size());
  }

  const Plan& plan() const { return placed_->plan(); }
  std::int64_t workspace_bytes() const { return bytes_; }

  void run(std::span<const void* const> given, void* workspace, void* stream) {
    check("workspace", workspace, bytes_);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Place& place = places_[i];
      const void* address = given[place.given];
      if (address == nullptr && may_be_absent(place.name)) {
        memory_[i] = static_cast<std::byte*>(workspace) + place.offset;
        if (i < reads_) clear(memory_[i], place.bytes, stream);  // a gradient that counts as 0
        continue;
      }
      const bool is_saved = place.name == "gates" || place.name == "cells";
      check(is_saved ? "saved" : place.name, address, place.bytes);
      memory_[i] = const_cast<void*>(address);
    }
    const std::span<void* const> all(memory_);
    placed_->run({memory_.data(), reads_}, all.subspan(reads_), workspace, stream);
  }

 private:
  struct Place {
    std::string name;
    std::size_t given;           // position among the arguments of a call
    std::int64_t bytes, offset;  // in the workspace, where it is absent
  };

  void check(std::string_view name, const void* address, std::int64_t bytes) const {
    const std::uintptr_t alignment = device_.kind == DeviceKind::cuda ? kSlotAlignment : 64;
    if (address == nullptr && bytes > 0) fail(ErrorKind::argument, "{} is null, needed are {} bytes", name, bytes);
    if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
      fail(ErrorKind::argument, "{} is at {}, needs to be aligned to {} bytes", name, fmt::ptr(address), alignment);
    }
  }
  // Gradients, and results that not everybody wants.
  static bool may_be_absent(std::string_view argument) {
    return argument.starts_with("d_") || argument.starts_with("last_");
  }

  void clear(void* address, std::int64_t bytes, void* stream) const {
    if (device_.kind == DeviceKind::cuda) return clear_gpu_memory(device_, address, bytes, stream);
    std::memset(address, 0, static_cast<std::size_t>(bytes));
  }

  const Device device_;
  std::unique_ptr<PlacedPlan> placed_;
  std::vector<Place> places_;  // operands, then results
  std::size_t reads_ = 0;
  std::int64_t bytes_;
  std::vector<void*> memory_;  // per place
};

}  // namespace
}  // namespace paoding

struct pd_recurrent_plan {
  explicit pd_recurrent_plan(const pd_recurrent_layer& layer) : is_training(layer.is_training != 0) {
    using namespace paoding;
    check_layer(layer);
    const Device device = device_of(layer.device);
    const auto make = [&](const char* name, void (*build)(const pd_recurrent_layer&, Graph*),
                          std::span<const std::string_view> given) {
      Graph graph;
      build(layer, &graph);
      return Direction(name, graph, layer, device, given);
    };
    forward.emplace(make("pd_recurrent_forward", build_forward, kForward));
    if (is_training) backward.emplace(make("pd_recurrent_backward", build_backward, kBackward));
    for (const SavedPart& part : saved_parts(layer)) {
      if (saved_bytes > 0) cells_offset = saved_bytes;
      saved_bytes += slot_bytes(part.type.shape.elements() * size_bytes(part.type.dtype));
    }
  }

  // Made when it is first asked for: most plans never are.
  const char* described() const {
    if (text.empty()) {
      text = "forward\n" + to_string(forward->plan());
      if (backward) text += "backward\n" + to_string(backward->plan());
    }
    return text.c_str();
  }

  // The place of the cells: their own, or in the saved memory after the gates.
  const void* cells_in(const void* saved, const void* cells) const {
    return cells != nullptr ? cells : saved == nullptr ? nullptr : static_cast<const std::byte*>(saved) + cells_offset;
  }

  const bool is_training;
  std::optional<paoding::Direction> forward, backward;
  std::int64_t saved_bytes = 0, cells_offset = 0;
  mutable std::string text;
};

namespace {

void check_given(const void* pointer, const char* name) {
  if (pointer == nullptr) paoding::fail(paoding::ErrorKind::argument, "{} is null", name);
}

}  // namespace

extern "C" {

pd_status pd_recurrent_create(const pd_recurrent_layer* layer, pd_recurrent_plan** plan) {
  return paoding::reported("pd_recurrent_create", [&] {
    check_given(layer, "layer");
    check_given(plan, "plan");
    *plan = nullptr;
    *plan = new pd_recurrent_plan(*layer);
  });
}

void pd_recurrent_destroy(pd_recurrent_plan* plan) { delete plan; }

pd_status pd_recurrent_get_sizes(const pd_recurrent_plan* plan, pd_recurrent_sizes* sizes) {
  return paoding::reported("pd_recurrent_get_sizes", [&] {
    check_given(plan, "plan");
    check_given(sizes, "sizes");
    sizes->forward_workspace = static_cast<std::size_t>(plan->forward->workspace_bytes());
    sizes->backward_workspace = plan->backward ? static_cast<std::size_t>(plan->backward->workspace_bytes()) : 0;
    sizes->saved = static_cast<std::size_t>(plan->saved_bytes);
  });
}

const char* pd_recurrent_describe(const pd_recurrent_plan* plan) { return plan == nullptr ? "" : plan->described(); }

pd_status pd_recurrent_forward(pd_recurrent_plan* plan, const pd_recurrent_forward_args* args, void* stream) {
  return paoding::reported("pd_recurrent_forward", [&] {
    check_given(plan, "plan");
    check_given(args, "args");
    const std::array<const void*, paoding::kForward.size()> given = {
        args->x,      args->w,      args->u,       args->b,
        args->h0,     args->c0,     args->lengths, args->states,
        args->last_h, args->last_c, args->saved,   plan->cells_in(args->saved, args->saved_cells),
        args->b_hh};
    plan->forward->run(given, args->workspace, stream);
  });
}

pd_status pd_recurrent_backward(pd_recurrent_plan* plan, const pd_recurrent_backward_args* args, void* stream) {
  return paoding::reported("pd_recurrent_backward", [&] {
    check_given(plan, "plan");
    check_given(args, "args");
    if (!plan->backward) {
      paoding::fail(paoding::ErrorKind::argument, "the plan was made without is_training");
    }
    const std::array<const void*, paoding::kBackward.size()> given = {
        args->x,        args->w,        args->u,        args->h0,
        args->lengths,  args->states,   args->saved,    plan->cells_in(args->saved, args->saved_cells),
        args->d_states, args->d_last_h, args->d_last_c, args->d_x,
        args->d_w,      args->d_u,      args->d_b,      args->d_h0,
        args->d_c0,     args->d_b_hh};
    plan->backward->run(given, args->workspace, stream);
  });
}

const char* pd_last_error(void) { return paoding::last_error.c_str(); }

}  // extern "C"
