// SPDX-License-Identifier: Apache-2.0
// Nsight Systems' export to SQLite (nsys export --type sqlite). Its tables and columns differ between versions: each is
// looked for, and what is missing is said where something is not known for it. What the file says of the machine's
// environment is not read.
#pragma once

#include "profile/trace.h"
#include "trace/sqlite_file.h"

namespace paoding::trace {

/// A finished trace. Error (file) that names the tables when none that is read is there.
profile::Trace read_nsight(const SqliteFile& file, const std::string& name);

}  // namespace paoding::trace
