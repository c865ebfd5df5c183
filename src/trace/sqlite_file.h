// SPDX-License-Identifier: Apache-2.0
// Tables of an SQLite file that somebody else wrote: read only, and nothing but tables. What the file says of views,
// triggers and functions is never run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace paoding::trace {

inline constexpr std::string_view kSqliteMark{"SQLite format 3\0", 16};

/// The rows of a table, in the order in which they lie. Numbers of columns are those of the list that was asked for; of
/// one that the table has not everything is null.
class SqliteRows {
 public:
  SqliteRows() = default;
  SqliteRows(SqliteRows&& other) noexcept { *this = std::move(other); }
  SqliteRows& operator=(SqliteRows&& other) noexcept;
  ~SqliteRows();

  /// To the next row. Error (file) when what comes cannot be read.
  bool next();
  bool has(int column) const { return places_[static_cast<std::size_t>(column)] >= 0; }
  bool is_null(int column) const;
  /// 0 where it is null or no number.
  std::int64_t integer(int column) const;
  /// Until the next row.
  std::string_view text(int column) const;

 private:
  friend class SqliteFile;
  sqlite3_stmt* statement_ = nullptr;
  std::string name_;
  std::vector<int> places_;  // in the statement; -1: not in the table
  std::uint64_t left_ = 0;   // rows that the file has room for
  bool is_over_ = false;
};

class SqliteFile {
 public:
  /// Of the file at this path. Error (file) when it cannot be opened.
  static SqliteFile at(const std::string& path);
  /// Of what is in memory, which is given up for it; `name` is for errors.
  static SqliteFile of(std::string bytes, std::string name);
  SqliteFile(SqliteFile&&) = default;
  ~SqliteFile();

  bool has(std::string_view table) const;
  /// The columns of a table; none where it is missing. Error (file) when the file is none.
  std::vector<std::string> columns(std::string_view table) const;
  /// A table that is missing has no rows.
  SqliteRows rows(std::string_view table, const std::vector<std::string_view>& columns) const;

 private:
  SqliteFile() = default;
  void prepare(std::uint64_t size_bytes);
  SqliteRows run(const std::string& text, std::vector<int> places) const;
  sqlite3_stmt* statement(const std::string& text) const;

  struct Close {
    void operator()(sqlite3* database) const;
  };
  std::string name_;
  std::string bytes_;
  std::unique_ptr<sqlite3, Close> database_;
  std::vector<std::string> tables_;
  std::uint64_t most_rows_ = 0;
};

}  // namespace paoding::trace
