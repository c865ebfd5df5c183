// SPDX-License-Identifier: Apache-2.0
// The readers of whole files, as the list of formats wants them.
#include "trace/nsight.h"
#include "trace/perfetto.h"
#include "trace/readers.h"
#include "trace/rocprof.h"
#include "trace/xplane.h"

namespace paoding::trace {
namespace {

template <class Read>
profile::Trace read_whole(TraceFile& file, Read&& read) {
  profile::Trace trace = read(file.rest(), file.name());
  if (!file.problem().empty()) trace.add_note("files that are not whole: " + file.problem(), 1);
  return trace;
}

}  // namespace

bool recognises_xplane(const TraceFile& file) { return is_xplane(file.head()); }
profile::Trace read_xplane(TraceFile& file) { return read_whole(file, read_xplane_text); }

bool recognises_perfetto(const TraceFile& file) { return is_perfetto(file.head()); }

bool recognises_rocprof(const TraceFile& file) { return is_rocprof(file.head()); }
profile::Trace read_rocprof(TraceFile& file) { return read_whole(file, read_rocprof_text); }

bool recognises_sqlite(const TraceFile& file) { return file.head().starts_with(kSqliteMark); }

profile::Trace read_sqlite(TraceFile& file) {
  const bool lies_plain = file.is_on_disk() && !file.is_packed();
  return read_nsight(lies_plain ? SqliteFile::at(file.name()) : SqliteFile::of(file.rest(), file.name()), file.name());
}

}  // namespace paoding::trace
