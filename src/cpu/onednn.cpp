// SPDX-License-Identifier: Apache-2.0
#include "cpu/onednn.h"

#include "base/check.h"
#include "base/memory.h"
#include "cpu/parallel.h"

namespace paoding {

namespace {

// Memory to make a primitive and to run it for the first time, machine code included. oneDNN does not check the results
// of its allocations there.
constexpr std::int64_t kWorkingBytes = 64 << 20;

}  // namespace

namespace {

// The process's only one, for things that need no memory but their own few bytes.
const dnnl::engine& the_engine() {
  start_threads();
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

}  // namespace

const dnnl::engine& onednn_engine() {
  require_memory("oneDNN: making a kernel", kWorkingBytes);
  return the_engine();
}

dnnl::memory::data_type onednn_type(DType dtype) {
  PD_ASSERT(dtype == DType::f32 || dtype == DType::bf16, "oneDNN 2.6 computes in f32 and bf16");
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

dnnl::memory::desc onednn_desc(DType dtype, const std::vector<std::int64_t>& dims,
                               const std::vector<std::int64_t>& strides) {
  return {dims, onednn_type(dtype), strides};
}

void fail_in_onednn(std::string_view op, std::string_view why) {
  fail(ErrorKind::device, "{}: oneDNN failed ({}); {}", op, why, memory_left());
}

OneDnnSequence::OneDnnSequence() : stream_(the_engine()) {}

OneDnnSequence::Place OneDnnSequence::scratch(std::size_t bytes) {
  constexpr std::int64_t kLine = 256;  // whole cache lines, and no two pieces in one
  const Place place{true, scratch_bytes_};
  scratch_bytes_ += (static_cast<std::int64_t>(bytes) + kLine - 1) / kLine * kLine;
  return place;
}

std::size_t OneDnnSequence::memory(const dnnl::memory::desc& desc, Place place) {
  memories_.emplace_back(desc, the_engine(), nullptr);
  descs_.push_back(desc);
  places_.push_back(place);
  return memories_.size() - 1;
}

void OneDnnSequence::add(dnnl::primitive primitive, std::vector<std::pair<int, std::size_t>> arguments) {
  Stage stage{std::move(primitive), {}};
  for (const auto& [argument, memory] : arguments) stage.arguments.push_back({argument, memories_[memory].get()});
  stages_.push_back(std::move(stage));
}

void OneDnnSequence::add_reorder(std::size_t from, std::size_t to) {
  const Place &a = places_[from], &b = places_[to];
  if (a.is_scratch == b.is_scratch && a.at == b.at && descs_[from] == descs_[to]) return;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc made(onednn_engine(), descs_[from], onednn_engine(), descs_[to], attr);
  std::vector<std::pair<int, std::size_t>> arguments = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  const auto pad = made.scratchpad_desc();
  if (pad.get_size() > 0) arguments.emplace_back(DNNL_ARG_SCRATCHPAD, memory(pad, scratch(pad.get_size())));
  add(dnnl::reorder(made), std::move(arguments));
}

void OneDnnSequence::run(void* const* operands, void* scratch) const {
  start_threads();
  if (!has_run_) require_memory("oneDNN: running a kernel for the first time", kWorkingBytes);
  has_run_ = true;
  // The C calls: the C++ ones make a map and a vector every time.
  for (std::size_t i = 0; i < memories_.size(); ++i) {
    const Place& place = places_[i];
    dnnl_memory_set_data_handle(memories_[i].get(),
                                place.is_scratch ? static_cast<char*>(scratch) + place.at : operands[place.at]);
  }
  for (const Stage& stage : stages_) {
    const dnnl_status_t status = dnnl_primitive_execute(
        stage.primitive.get(), stream_.get(), static_cast<int>(stage.arguments.size()), stage.arguments.data());
    if (status != dnnl_success) {
      fail_in_onednn("a kernel", status == dnnl_out_of_memory ? "out of memory" : fmt::format("status {}", +status));
    }
  }
}

}  // namespace paoding
