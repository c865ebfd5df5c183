// SPDX-License-Identifier: Apache-2.0
#include "trace/sqlite_file.h"

#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/one_line.h"

namespace paoding::trace {
namespace {

std::string quoted(std::string_view name) {
  std::string text = "\"";
  for (const char c : name) {
    text += c;
    if (c == '"') text += c;
  }
  return text + '"';
}

[[noreturn]] void fail_to_read(const std::string& name, sqlite3* database, int code) {
  const char* why = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  fail(ErrorKind::file, "{}: it cannot be read as an SQLite file: {}", name, one_line(why));
}

// What a path means in an SQLite URI.
std::string as_uri(const std::string& path) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string uri = "file:";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                          (byte >= '0' && byte <= '9') || c == '/' || c == '.' || c == '-' || c == '_';
    if (is_plain) {
      uri += c;
    } else {
      uri += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return uri + "?mode=ro&immutable=1";
}

}  // namespace

SqliteRows& SqliteRows::operator=(SqliteRows&& other) noexcept {
  std::swap(statement_, other.statement_);
  std::swap(name_, other.name_);
  std::swap(places_, other.places_);
  std::swap(left_, other.left_);
  std::swap(is_over_, other.is_over_);
  return *this;
}

SqliteRows::~SqliteRows() { sqlite3_finalize(statement_); }

bool SqliteRows::next() {
  if (statement_ == nullptr || is_over_) return false;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW && left_ > 0) {
    --left_;
    return true;
  }
  if (code == SQLITE_ROW) {
    fail(ErrorKind::file, "{}: it cannot be read as an SQLite file: its pages lie in each other", name_);
  }
  is_over_ = true;
  if (code != SQLITE_DONE) fail_to_read(name_, sqlite3_db_handle(statement_), code);
  return false;
}

bool SqliteRows::is_null(int column) const {
  const int place = places_[static_cast<std::size_t>(column)];
  return place < 0 || sqlite3_column_type(statement_, place) == SQLITE_NULL;
}

std::int64_t SqliteRows::integer(int column) const {
  const int place = places_[static_cast<std::size_t>(column)];
  return place < 0 ? 0 : sqlite3_column_int64(statement_, place);
}

std::string_view SqliteRows::text(int column) const {
  const int place = places_[static_cast<std::size_t>(column)];
  if (place < 0) return {};
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, place));
  if (text == nullptr) return {};
  return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, place))};
}

void SqliteFile::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

SqliteFile::~SqliteFile() = default;

SqliteFile SqliteFile::at(const std::string& path) {
  SqliteFile file;
  file.name_ = path;
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(as_uri(path).c_str(), &database,
                                   SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  file.database_.reset(database);
  if (code != SQLITE_OK) fail_to_read(path, database, code);
  std::error_code unknown;
  file.prepare(std::filesystem::file_size(path, unknown));
  return file;
}

SqliteFile SqliteFile::of(std::string bytes, std::string name) {
  SqliteFile file;
  file.name_ = std::move(name);
  file.bytes_ = std::move(bytes);
  sqlite3* database = nullptr;
  int code = sqlite3_open_v2(":memory:", &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  file.database_.reset(database);
  if (code == SQLITE_OK) {
    code = sqlite3_deserialize(database, "main", reinterpret_cast<unsigned char*>(file.bytes_.data()),
                               static_cast<sqlite3_int64>(file.bytes_.size()),
                               static_cast<sqlite3_int64>(file.bytes_.size()), SQLITE_DESERIALIZE_READONLY);
  }
  if (code != SQLITE_OK) fail_to_read(file.name_, database, code);
  file.prepare(file.bytes_.size());
  return file;
}

void SqliteFile::prepare(std::uint64_t size_bytes) {
  constexpr std::uint64_t kLeastRow = 4;  // bytes that a row and its place take
  most_rows_ = size_bytes / kLeastRow;
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  constexpr int kMostText = 1 << 26, kMostColumns = 512, kMostDepth = 64;
  sqlite3_limit(database_.get(), SQLITE_LIMIT_LENGTH, kMostText);
  sqlite3_limit(database_.get(), SQLITE_LIMIT_COLUMN, kMostColumns);
  sqlite3_limit(database_.get(), SQLITE_LIMIT_EXPR_DEPTH, kMostDepth);
  sqlite3_exec(database_.get(), "PRAGMA cell_size_check=ON", nullptr, nullptr, nullptr);
  // A table that a module computes is made by another text.
  SqliteRows rows = run("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE TABLE %'", {0});
  while (rows.next()) tables_.emplace_back(rows.text(0));
}

SqliteRows SqliteFile::run(const std::string& text, std::vector<int> places) const {
  SqliteRows rows;
  rows.statement_ = statement(text);
  rows.name_ = name_;
  rows.places_ = std::move(places);
  rows.left_ = most_rows_;
  return rows;
}

sqlite3_stmt* SqliteFile::statement(const std::string& text) const {
  sqlite3_stmt* made = nullptr;
  const int code = sqlite3_prepare_v2(database_.get(), text.c_str(), static_cast<int>(text.size()), &made, nullptr);
  if (code != SQLITE_OK) fail_to_read(name_, database_.get(), code);
  return made;
}

bool SqliteFile::has(std::string_view table) const { return std::ranges::find(tables_, table) != tables_.end(); }

std::vector<std::string> SqliteFile::columns(std::string_view table) const {
  if (!has(table)) return {};
  SqliteRows rows = run("PRAGMA table_info(" + quoted(table) + ")", {1});
  std::vector<std::string> columns;
  while (rows.next()) columns.emplace_back(rows.text(0));
  return columns;
}

SqliteRows SqliteFile::rows(std::string_view table, const std::vector<std::string_view>& columns) const {
  std::vector<int> places(columns.size(), -1);
  const std::vector<std::string> there = this->columns(table);
  std::string text = "SELECT ";
  int count = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (std::ranges::find(there, columns[i]) == there.end()) continue;
    text += (count > 0 ? ", " : "") + quoted(columns[i]);
    places[i] = count++;
  }
  if (count == 0) return {};
  return run(text + " FROM " + quoted(table), std::move(places));
}

}  // namespace paoding::trace
