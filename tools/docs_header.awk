#!/usr/bin/awk -f
# SPDX-License-Identifier: Apache-2.0
# A public header as Doxygen reads it: what stands in front of it and beside its members becomes documentation too, and
# code in comments is code.

# What Doxygen would take for its own is escaped, outside of `..` and "..": commands, tags, links. A summary ends with a
# sentence, not behind "et al." or "..".
function escaped(text,    piece, quote, result) {
  while (text != "") {
    piece = text
    if (match(text, /[`"]/)) piece = substr(text, 1, RSTART - 1)
    text = substr(text, length(piece) + 1)
    if (quote == "") {
      gsub(/\\/, "\\\\\\\\", piece)
      gsub(/</, "\\\\<", piece)
      gsub(/#/, "\\\\#", piece)
      gsub(/ et al\. /, " et al.\\\\ ", piece)
      gsub(/\.\. /, "..\\\\ ", piece)
    }
    result = result piece substr(text, 1, 1)
    quote = quote == "" ? substr(text, 1, 1) : quote == substr(text, 1, 1) ? "" : quote
    text = substr(text, 2)
  }
  return result
}

# A line of documentation: indented by more than a space it is code.
function said(indent, text) {
  if (text ~ /^  +[^ ]/) {
    if (!in_code) { print indent "/// @code{.unparsed}"; in_code = 1 }
    print indent "/// " substr(text, 2)
    return
  }
  end_code(indent)
  print indent "///" escaped(text)
}
function end_code(indent) {
  if (in_code) print indent "/// @endcode"
  in_code = 0
}
function end_section(indent) {
  if (in_section) print indent "/// @}"
  in_section = 0
}

FNR == 1 { at_top = 1; is_c = /^\/\*/; print is_c ? "" : "/// @file"; next }
# A header in C: /* .. */ in front of a thing and beside a member.
is_c && FNR == 2 { at_top = 0; sub(/^\/\* /, "/** @file\n * "); print; next }
is_c && /^ \*   / { if (!in_code) print " * @code{.c}"; in_code = 1; print; next }
is_c { if (in_code) print " * @endcode"; in_code = 0 }
is_c && /^ *\/\* / { sub(/\/\* /, "/** "); print; next }
is_c { sub(/ \/\* /, " /**< "); print; next }
at_top && /^\/\// { said("", substr($0, 3)); next }
at_top { at_top = 0; end_code("") }

{ indent = $0; sub(/[^ ].*/, "", indent); text = substr($0, length(indent) + 1) }

# // ---- layers ---- and what is said below it.
text ~ /^\/\/ ---- .* ----/ {
  end_section(indent)
  title = text; sub(/^\/\/ ---- /, "", title); rest = title; sub(/ ----.*/, "", title); sub(/.* ---- ?/, "", rest)
  print indent "/// @name " toupper(substr(title, 1, 1)) substr(title, 2)
  if (rest != "" && rest !~ /----$/) print indent "/// " escaped(rest)
  heading = 1; next
}
heading && text ~ /^\/\/ / { print indent "/// " escaped(substr(text, 4)); next }
heading { print indent "/// @{"; heading = 0; in_section = 1; section_indent = indent }
in_section && (/^} / || /^};/ && section_indent != "" || text ~ /^(private|protected|public):/) { end_section(section_indent) }

text ~ /^\/\/\// { said(indent, substr(text, 4)); next }
{ end_code(indent) }

# Beside a member: dtype;  // of the outputs
text !~ /^(\/\/|if|for|return|while|else|#)/ && match($0, /  ?\/\/ /) && $0 !~ /NOLINT|namespace|src\// && $0 ~ /[;,}A-Za-z0-9] +\/\/ / {
  code = substr($0, 1, RSTART - 1); note = substr($0, RSTART); sub(/^ *\/\/ /, "", note)
  column = index($0, "// ")
  print code "  ///< " escaped(note); beside = column; next
}
beside && text ~ /^\/\/ / && index($0, "// ") == beside { print indent "///< " escaped(substr(text, 4)); next }
{ beside = 0; print }
