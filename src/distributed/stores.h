// SPDX-License-Identifier: Apache-2.0
// The kinds of stores by which ranks find each other, and the communicators that are made with them.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "paoding/distributed.h"

namespace paoding {

inline constexpr std::size_t kMostStoredBytes = std::size_t{1} << 20;  // of a key or value

std::shared_ptr<RankStore> open_file_store(const std::string& folder);
/// Rank 0 listens on the port of every address of its machine; the others connect to `host`.
std::shared_ptr<RankStore> open_tcp_store(const std::string& host, int port, bool listens,
                                          std::chrono::milliseconds timeout);

[[noreturn]] void fail_not_set(const std::string& key, std::chrono::milliseconds timeout);

/// The communicator of a job with one rank, where nobody has to be reached.
std::shared_ptr<Communicator> one_rank(const Device& device);

/// Connects ranks on the CPU by Gloo. Error (unsupported) in a build without it.
std::shared_ptr<Communicator> connect_by_gloo(const RankPlace& place, const ConnectOptions& options);
/// "" in a build with Gloo, else how to get one.
std::string missing_gloo();

/// Connects ranks on GPUs by NCCL. Error (unsupported) where it is not found.
std::shared_ptr<Communicator> connect_by_nccl(const RankPlace& place, int index, const ConnectOptions& options);
/// "" where NCCL is found, else where it was looked for.
std::string missing_nccl();

}  // namespace paoding
