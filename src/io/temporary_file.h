// SPDX-License-Identifier: Apache-2.0
// Files that exist under a name of their own until they are whole. One of a process that was killed is deleted by the
// next that writes into its folder.
#pragma once

#include <filesystem>
#include <string>

#include "io/files.h"

namespace paoding::files {

/// Locked while it lives, by which others know that it is not a dead process's; goes away with the object unless it was
/// moved.
class TemporaryFile {
 public:
  /// Errors call the file that it becomes `name`. Error (file) when `folder` cannot be written to.
  TemporaryFile(const std::filesystem::path& folder, const std::string& name);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  /// The descriptor to write with; whoever has it closes it.
  Descriptor writer() const;
  /// Gives it the name `path`, in the same folder; an old file there, a link too, is gone.
  void move_to(const std::filesystem::path& path);

 private:
  bool take_name(const std::filesystem::path& path);
  void note();

  std::string name_;
  std::filesystem::path path_;
  Descriptor descriptor_;  // whose lock it is
  int noted_ = -1;         // where remove_temporary_files() finds it
  bool is_moved_ = false;
};

/// Deletes files that dead processes of this user left in `folder`.
void remove_stale_files(const std::filesystem::path& folder);

/// Deletes this process's own, for it is about to end. A signal's handler may call it.
void remove_temporary_files() noexcept;

}  // namespace paoding::files
