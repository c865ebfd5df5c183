#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/docs.sh FOLDER: writes the site (guide, documents, reference) into FOLDER/html. A warning of Doxygen's is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:?usage: tools/docs.sh FOLDER}
theme=/usr/share/doxygen-awesome-css
if ! command -v doxygen >/dev/null; then
  echo "docs: Doxygen is missing (make deps-docs)" >&2
  exit 1
fi

rm -rf "$to"
mkdir -p "$to"
to=$(cd "$to" && pwd)
export PAODING_SITE_FILES=$to/linked_files
: >"$PAODING_SITE_FILES"
{
  cat docs/site/Doxyfile
  echo "OUTPUT_DIRECTORY = $to"
  echo "PROJECT_NUMBER = $(sed -n 's/^project(paoding VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
  if [[ -d $theme ]]; then
    echo "HTML_EXTRA_STYLESHEET = $theme/doxygen-awesome.css $theme/doxygen-awesome-sidebar-only.css" \
      "$theme/doxygen-awesome-sidebar-only-darkmode-toggle.css docs/site/site.css"
    echo "HTML_EXTRA_FILES = $theme/doxygen-awesome-darkmode-toggle.js $theme/doxygen-awesome-fragment-copy-button.js" \
      "$theme/doxygen-awesome-paragraph-link.js"
  fi
} >"$to/Doxyfile"
if [[ -d $theme ]]; then
  # Doxygen's own first lines of a page, with the theme's switches.
  doxygen -w html "$to/header.html" "$to/footer.html" "$to/stylesheet.css" "$to/Doxyfile"
  sed -i 's|^</head>|<script type="text/javascript" src="$relpath^doxygen-awesome-darkmode-toggle.js"></script>\
<script type="text/javascript" src="$relpath^doxygen-awesome-fragment-copy-button.js"></script>\
<script type="text/javascript" src="$relpath^doxygen-awesome-paragraph-link.js"></script>\
<script type="text/javascript">DoxygenAwesomeDarkModeToggle.init(); DoxygenAwesomeFragmentCopyButton.init(); DoxygenAwesomeParagraphLink.init()</script>\
&|' "$to/header.html"
  echo "HTML_HEADER = $to/header.html" >>"$to/Doxyfile"
fi
doxygen "$to/Doxyfile"
sort -u "$PAODING_SITE_FILES" | while read -r file; do
  mkdir -p "$to/html/files/$(dirname "$file")"
  cp -r "$file" "$to/html/files/$file"
done
rm -f "$to"/{header,footer}.html "$to/stylesheet.css"
echo "docs: $to/html/index.html"
