#!/usr/bin/awk -f
# SPDX-License-Identifier: Apache-2.0
# A document as Doxygen reads it: its heading has a name that follows from its path, links to documents and headers are
# references. What else of the repository is linked is copied beside the pages: its path goes to the file
# PAODING_SITE_FILES (tools/docs.sh).

# docs/guide/../serving.md is docs/reference/serving.md.
function plain(path,    parts, count, i, kept, n, result) {
  count = split(path, parts, "/")
  n = 0
  for (i = 1; i <= count; ++i) {
    if (parts[i] == "..") --n
    else if (parts[i] != "." && parts[i] != "") kept[++n] = parts[i]
  }
  for (i = 1; i <= n; ++i) result = result (i > 1 ? "/" : "") kept[i]
  return result
}
function name_of(path) {
  if (path == "README.md") return "index"
  sub(/\.md$/, "", path)
  gsub(/[^A-Za-z0-9]/, "_", path)
  return tolower(path)
}
# Whether the page at `path` hangs below this one in the site's tree: below an index the other pages of its folder, and
# below the index of all how-tos and the other indexes.
function is_below(path) {
  if (here !~ /^docs\/(.*\/)?(README|index)\.md$/ || path == here) return 0
  if (here == "docs/README.md") return path ~ /^docs\/[^\/]*\.md$/ || path ~ /^docs\/howto\// || path ~ /^docs\/[^\/]*\/(README|index)\.md$/
  return path ~ ("^" folder "[^/]*\\.md$")
}
# [text](target), from here.
function link(text, target,    path) {
  if (target ~ /^#/) return text
  if (target ~ /^(https?:|@ref)/) return "[" text "](" target ")"
  sub(/#.*/, "", target)
  path = plain(folder target)
  if (path ~ /\.md$/ && path ~ /^(docs\/|README|CONTRIBUTING)/) {
    if (is_below(path) && !(path in shown)) {
      shown[path]
      return "@subpage " name_of(path) " \"" text "\""
    }
    return "[" text "](@ref " name_of(path) ")"
  }
  if (path ~ /^include\/paoding\/.*\.h$/) return "[" text "](@ref " substr(path, 9) ")"
  if (path ~ /\.(svg|png)$/) { sub(/.*\//, "", path); return "[" text "](" path ")" }
  print path >> ENVIRON["PAODING_SITE_FILES"]
  # Doxygen would take what ends in .md for a page of its own.
  return path ~ /\.md$/ ? "<a href=\"files/" path "\">" text "</a>" : "[" text "](files/" path ")"
}

FNR == 1 {
  here = FILENAME
  root = ENVIRON["PWD"] "/"
  if (index(here, root) == 1) here = substr(here, length(root) + 1)
  folder = here
  if (!sub(/[^\/]*$/, "", folder)) folder = ""
}
/^```/ { in_code = !in_code }
in_code { sub(/^```sh$/, "```{.sh}"); print; next }
FNR == 1 && /^# / && here != "README.md" { print $0 " {#" name_of(here) "}"; next }
# A link may begin in one line and end in the next.
{
  text = (pending != "" ? pending "\n" : "") $0
  pending = ""
  result = ""
  while (match(text, /\[[^][]*\]\([^)]+\)/)) {
    found = substr(text, RSTART + 1, RLENGTH - 2)
    middle = index(found, "](")
    result = result substr(text, 1, RSTART - 1) link(substr(found, 1, middle - 1), substr(found, middle + 2))
    text = substr(text, RSTART + RLENGTH)
  }
  if (match(text, /\[[^]]*$/) && text !~ /^ *[|]/ && $0 != "") {
    pending = substr(text, RSTART)
    printf "%s", result substr(text, 1, RSTART - 1)
    held = 1
    next
  }
  print result text
}
END { if (pending != "") print pending }
