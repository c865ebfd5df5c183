// SPDX-License-Identifier: Apache-2.0
// The C interface of recurrent layers on a GPU: in the caller's stream and in a graph that the caller captures.
#include <gtest/gtest.h>

#include <random>

#include "paoding/recurrent.h"
#include "tests/gpu/on_gpu.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t T = 4, B = 5, I = 8, H = 24;

TEST(RecurrentInCOnAGpu, RunsInTheCallersStreamAndGraph) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  for (const auto& [cell, two] : {std::pair{PD_LSTM, 0}, {PD_GRU, 0}, {PD_RNN_TANH, 0}, {PD_LSTM, 1}, {PD_GRU, 1}}) {
    SCOPED_TRACE(static_cast<int>(cell) + 10 * two);
    const std::int64_t G = cell == PD_LSTM ? 4 : cell == PD_GRU ? 3 : 1, biases = cell == PD_GRU && two == 0 ? 4 : G;
    const pd_recurrent_layer layer = {cell, PD_F32, "cuda", T, B, I, H, 0, 0, 1, 0, 0, two, 0};
    pd_recurrent_layer on_cpu = layer;
    on_cpu.device = "cpu";
    pd_recurrent_plan *plan = nullptr, *expected = nullptr;
    ASSERT_EQ(pd_recurrent_create(&layer, &plan), PD_OK) << pd_last_error();
    ASSERT_EQ(pd_recurrent_create(&on_cpu, &expected), PD_OK) << pd_last_error();
    pd_recurrent_sizes sizes, cpu_sizes;
    pd_recurrent_get_sizes(plan, &sizes);
    pd_recurrent_get_sizes(expected, &cpu_sizes);

    std::mt19937 random(7);
    const auto values = [&](std::int64_t count) {
      Dense made;
      for (std::int64_t i = 0; i < count; ++i) made.push_back(static_cast<double>(random() % 64) / 32 - 1);
      return made;
    };
    const Dense x = values(T * B * I), w = values(I * G * H), u = values(H * G * H), b = values(biases * H),
                h0 = values(B * H), c0 = values(B * H), d_states = values(T * B * H), b_hh = values(G * H);
    const auto on_host = [](const Dense& of) { return Tensor::from(f32, {static_cast<std::int64_t>(of.size())}, of); };
    const auto room = [](std::size_t bytes) { return Tensor(DType::u8, {static_cast<std::int64_t>(bytes) + 64}); };

    // ---- on the CPU ----
    const Tensor hx = on_host(x), hw = on_host(w), hu = on_host(u), hb = on_host(b), hh = on_host(h0), hc = on_host(c0),
                 hd = on_host(d_states), hb_hh = on_host(b_hh);
    Tensor states(f32, {(T + 1) * B * H}), d_x(f32, {T * B * I}), d_u(f32, {H * G * H}), d_b(f32, {biases * H}),
        d_b_hh(f32, {G * H}), saved = room(cpu_sizes.saved),
                              workspace = room(std::max(cpu_sizes.forward_workspace, cpu_sizes.backward_workspace));
    pd_recurrent_forward_args forward = {hx.bytes(),    hw.bytes(),        hu.bytes(),     hb.bytes(), hh.bytes(),
                                         hc.bytes(),    nullptr,           states.bytes(), nullptr,    nullptr,
                                         saved.bytes(), workspace.bytes(), hb_hh.bytes(),  nullptr};
    ASSERT_EQ(pd_recurrent_forward(expected, &forward, nullptr), PD_OK) << pd_last_error();
    pd_recurrent_backward_args backward = {hx.bytes(),     hw.bytes(),        hu.bytes(),     hh.bytes(),  nullptr,
                                           states.bytes(), saved.bytes(),     hd.bytes(),     nullptr,     nullptr,
                                           d_x.bytes(),    nullptr,           d_u.bytes(),    d_b.bytes(), nullptr,
                                           nullptr,        workspace.bytes(), d_b_hh.bytes(), nullptr};
    ASSERT_EQ(pd_recurrent_backward(expected, &backward, nullptr), PD_OK) << pd_last_error();

    // ---- on the GPU: captured, and run twice, the second time with other inputs ----
    const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
    device.make_current();
    const gpu::Driver& driver = gpu::required_driver();
    OnGpu gx(Dense(x.size(), 0.5)), gw(w), gu(u), gb(b), gh(h0), gc(c0), gd(d_states), gb_hh(b_hh);
    OnGpu gstates(states.size_bytes()), gsaved(sizes.saved), gd_x(d_x.size_bytes()), gd_u(d_u.size_bytes()),
        gd_b(d_b.size_bytes()), gd_b_hh(d_b_hh.size_bytes()),
        gspace(std::max(sizes.forward_workspace, sizes.backward_workspace));
    forward = {gx.at(),      gw.at(), gu.at(), gb.at(),     gh.at(),     gc.at(),    nullptr,
               gstates.at(), nullptr, nullptr, gsaved.at(), gspace.at(), gb_hh.at(), nullptr};
    backward = {gx.at(), gw.at(), gu.at(),     gh.at(),      nullptr, gstates.at(), gsaved.at(),
                gd.at(), nullptr, nullptr,     gd_x.at(),    nullptr, gd_u.at(),    gd_b.at(),
                nullptr, nullptr, gspace.at(), gd_b_hh.at(), nullptr};
    const gpu::Stream stream(device);
    // Calls that allocate or wait may not be captured.
    PD_CUDA(driver.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ASSERT_EQ(pd_recurrent_forward(plan, &forward, stream.get()), PD_OK) << pd_last_error();
    ASSERT_EQ(pd_recurrent_backward(plan, &backward, stream.get()), PD_OK) << pd_last_error();
    CUgraph graph = nullptr;
    PD_CUDA(driver.cuStreamEndCapture(stream.get(), &graph));
    CUgraphExec runnable = nullptr;
    PD_CUDA(driver.cuGraphInstantiate(&runnable, graph, 0));
    PD_CUDA(driver.cuGraphLaunch(runnable, stream.get()));
    PD_CUDA(driver.cuStreamSynchronize(stream.get()));
    gx.write(x);
    PD_CUDA(driver.cuGraphLaunch(runnable, stream.get()));
    PD_CUDA(driver.cuStreamSynchronize(stream.get()));
    expect_close("states", gstates.read((T + 1) * B * H), states.to_doubles(), 1e-5);
    expect_close("d_x", gd_x.read(T * B * I), d_x.to_doubles(), 1e-4);
    expect_close("d_u", gd_u.read(H * G * H), d_u.to_doubles(), 1e-4);
    expect_close("d_b", gd_b.read(biases * H), d_b.to_doubles(), 1e-4);
    if (two != 0) expect_close("d_b_hh", gd_b_hh.read(G * H), d_b_hh.to_doubles(), 1e-4);

    // ---- and without a graph ----
    ASSERT_EQ(pd_recurrent_forward(plan, &forward, stream.get()), PD_OK) << pd_last_error();
    PD_CUDA(driver.cuStreamSynchronize(stream.get()));
    expect_close("states", gstates.read((T + 1) * B * H), states.to_doubles(), 1e-5);
    PD_CUDA(driver.cuGraphExecDestroy(runnable));
    PD_CUDA(driver.cuGraphDestroy(graph));
    pd_recurrent_destroy(plan);
    pd_recurrent_destroy(expected);
  }
}

}  // namespace
}  // namespace paoding::testing_program
