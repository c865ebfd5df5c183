// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/kernel_cache.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

#include "base/cancel_poll.h"
#include "base/env.h"
#include "gpu/driver/nvrtc.h"
#include "io/temporary_file.h"

namespace paoding::gpu {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'P', 'D', 'C', 'U', 'B', 'I', 'N', '\0'};
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kMaxCompilers = 32;  // NVRTC takes some hundred megabytes for each
/// Hundreds of times the size of our largest kernel. A larger file was not made by us, whatever size it says it has.
constexpr std::uint64_t kMostCubinBytes = 64 << 20;

/// The head of a cache file; the cubin follows it.
struct FileHeader {
  char magic[8];
  std::uint32_t format_version;
  std::uint32_t header_bytes;
  std::uint64_t key[2];
  std::uint64_t cubin_bytes;
  std::uint64_t checksum[2];  // hash128 of the cubin
};
static_assert(sizeof(FileHeader) == 56);

/// Appends a part with its length first, so that no two lists of parts give the same text.
void append_part(std::string* text, std::string_view part) {
  *text += std::to_string(part.size());
  *text += ':';
  *text += part;
}

}  // namespace

KernelCompiler KernelCompiler::nvrtc() {
  return {nvrtc_version(),
          {},
          [](const std::string& source, const std::string& name, const std::string& arch,
             std::span<const std::string> options) { return gpu::compile(source, name, arch, options); }};
}

KernelCache::KernelCache(fs::path folder, KernelCompiler compiler)
    : folder_(std::move(folder)), compiler_(std::move(compiler)) {}

KernelCache& KernelCache::shared() {
  static auto* cache = new KernelCache(folder_from_environment(), KernelCompiler::nvrtc());
  return *cache;
}

fs::path KernelCache::folder_from_environment() {
  if (const auto own = env_value("PAODING_CACHE_DIR")) return *own;
  // Relative paths are to be ignored there, says the XDG specification.
  if (const fs::path xdg = env_text("XDG_CACHE_HOME"); xdg.is_absolute()) return xdg / "paoding";
  if (const fs::path home = env_text("HOME"); home.is_absolute()) return home / ".cache" / "paoding";
  return {};
}

KernelCache::Key KernelCache::key_of(const KernelSource& source, const std::string& arch) const {
  const std::pair of(source.hash(), arch);
  {
    const std::lock_guard lock(keys_mutex_);
    if (const auto known = keys_.find(of); known != keys_.end()) return known->second;
  }
  const Key made = made_key(source, arch);
  const std::lock_guard lock(keys_mutex_);
  return keys_.emplace(of, made).first->second;
}

KernelCache::Key KernelCache::made_key(const std::string& source, const std::string& arch) const {
  std::string text;
  append_part(&text, std::to_string(compiler_.version));
  append_part(&text, arch);
  for (const std::string& option : default_options(source)) append_part(&text, option);
  append_part(&text, "");  // parts the lists of options
  for (const std::string& option : compiler_.options) append_part(&text, option);
  append_part(&text, "");
  append_part(&text, source);
  return hash128(text);
}

fs::path KernelCache::file_of(const Key& key) const {
  return folder_ / fmt::format("{:016x}{:016x}.cubin", key[0], key[1]);
}

fs::path KernelCache::file_of(const KernelSource& source, const std::string& arch) const {
  return file_of(key_of(source, arch));
}

KernelCache::Cubin KernelCache::cubin(const KernelSource& source, const std::string& arch, const std::string& name) {
  const Key key = key_of(source, arch);
  std::promise<Cubin> promise;
  std::shared_future<Cubin> already;
  {
    std::lock_guard lock(mutex_);
    auto [entry, is_new] = cubins_.try_emplace(key);
    if (is_new) {
      entry->second = promise.get_future().share();
    } else {
      already = entry->second;
      ++counts_.memory_hits;
    }
  }
  if (already.valid()) return already.get();  // waits while another thread compiles it; rethrows that thread's error
  try {
    Cubin made = load_or_compile(key, source, arch, name);
    promise.set_value(made);
    return made;
  } catch (...) {
    {
      std::lock_guard lock(mutex_);
      cubins_.erase(key);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

KernelCache::Cubin KernelCache::load_or_compile(const Key& key, const std::string& source, const std::string& arch,
                                                const std::string& name) {
  if (Cubin found = read_file(key)) {
    std::lock_guard lock(mutex_);
    ++counts_.disk_hits;
    return found;
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  auto count = [&] {
    std::lock_guard lock(mutex_);
    ++counts_.compiles;
    counts_.compile_milliseconds += std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  Cubin made;
  try {
    made = std::make_shared<const std::vector<char>>(compiler_.compile(source, name, arch, compiler_.options));
  } catch (...) {
    count();
    throw;
  }
  count();
  write_file(key, *made);
  return made;
}

KernelCache::Cubin KernelCache::read_file(const Key& key) const {
  if (folder_.empty()) return nullptr;
  const fs::path path = file_of(key);
  std::error_code error;
  if (!fs::exists(path, error)) return nullptr;
  // Anything that does not fit is a file of another version or a damaged one: compiled anew and replaced.
  try {
    const files::InputFile file(path);
    const std::uint64_t file_bytes = file.size_bytes();
    if (file_bytes < sizeof(FileHeader) || file_bytes > sizeof(FileHeader) + kMostCubinBytes) return nullptr;
    FileHeader header;
    file.read_at(0, &header, sizeof(header));
    if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.format_version != kFormatVersion ||
        header.header_bytes != sizeof(FileHeader) || header.key[0] != key[0] || header.key[1] != key[1] ||
        header.cubin_bytes == 0 || header.cubin_bytes != file_bytes - sizeof(FileHeader)) {
      return nullptr;
    }
    std::vector<char> cubin(header.cubin_bytes);
    file.read_at(sizeof(header), cubin.data(), cubin.size());
    const Key checksum = hash128({cubin.data(), cubin.size()});
    if (checksum[0] != header.checksum[0] || checksum[1] != header.checksum[1]) return nullptr;
    return std::make_shared<const std::vector<char>>(std::move(cubin));
  } catch (const Error& problem) {
    if (problem.kind() != ErrorKind::file) throw;  // called off
    return nullptr;
  }
}

void KernelCache::write_file(const Key& key, const std::vector<char>& cubin) const {
  if (folder_.empty() || cubin.empty() || cubin.size() > kMostCubinBytes) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return;

  const Key checksum = hash128({cubin.data(), cubin.size()});
  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format_version = kFormatVersion;
  header.header_bytes = sizeof(FileHeader);
  header.key[0] = key[0];
  header.key[1] = key[1];
  header.cubin_bytes = cubin.size();
  header.checksum[0] = checksum[0];
  header.checksum[1] = checksum[1];

  // Other processes see the old file or the whole new one. A file cut by a power failure is known by its checksum.
  const fs::path path = file_of(key);
  try {
    files::TemporaryFile made(folder_, path.string());
    files::OutputFile file(made.writer(), path.string());
    file.write(&header, sizeof(header));
    file.write(cubin.data(), cubin.size());
    made.move_to(path);
  } catch (const Error&) {  // then it is kept in memory alone
  }
}

void KernelCache::compile_all(std::span<const KernelSource> sources, const std::string& arch) {
  std::atomic<std::size_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr first_error;
  const CancelPoll poll;  // of the calling thread
  auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < sources.size(); i = next.fetch_add(1)) {
      try {
        poll();
        cubin(sources[i], arch, fmt::format("kernel{}.cu", i));
      } catch (...) {
        std::lock_guard lock(error_mutex);
        if (first_error == nullptr) first_error = std::current_exception();
      }
    }
  };
  std::size_t missing = 0;
  {
    std::lock_guard lock(mutex_);
    for (const KernelSource& source : sources) missing += cubins_.count(key_of(source, arch)) == 0 ? 1 : 0;
  }
  std::vector<std::jthread> threads;  // joined on every way out
  try {
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    for (std::size_t i = 1; i < std::min({missing, cores, kMaxCompilers}); ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {  // the system starts no more: those that run do all of it
  }
  work();
  threads.clear();
  if (first_error != nullptr) std::rethrow_exception(first_error);
}

CacheCounts KernelCache::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace paoding::gpu
