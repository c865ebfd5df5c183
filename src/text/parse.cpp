// SPDX-License-Identifier: Apache-2.0
// parse_graph(): graph text to a Graph, one statement at a time. The text may come from anywhere, so names are kept in
// ordered maps, and depth, nodes and the work of gradients are limited: time and memory stay proportional to the text.
#include "text/parse.h"

#include <map>

#include "base/check.h"
#include "graph/formula.h"
#include "paoding/autodiff.h"
#include "paoding/graph_text.h"
#include "paoding/op.h"
#include "text/part_reader.h"
#include "text/suggest.h"

namespace paoding {
namespace {

constexpr int kMaxDepth = 16;                   // of bodies
constexpr std::int64_t kMaxNodes = 1'000'000;   // of the graph and its bodies
constexpr std::int64_t kMaxWalked = 4'000'000;  // nodes that gradients statements walk over in all

std::int64_t count_nodes(const Graph& graph, NodeId first = 0) {
  std::int64_t count = graph.size() - first;
  for (NodeId id = first; id < graph.size(); ++id) {
    for (const auto& body : graph.node(id).bodies) count += count_nodes(*body);
  }
  return count;
}

// The greatest cost of a gradients statement: the nodes it walks over.
std::int64_t gradient_cost(const Graph& graph) { return count_nodes(graph); }

// Thrown at the first declaration of an extent in a text that is read without sizes.
struct WithoutSizes {};

class Parser : PartReader {
 public:
  explicit Parser(std::string_view text) : PartReader(text) {}

  /// `sizes`: of the extents; nullptr where none are given.
  std::unique_ptr<Graph> run(const Extents::Key* sizes) {
    has_sizes_ = sizes != nullptr;
    if (has_sizes_) set_sizes(*sizes);
    header();
    auto graph = std::make_unique<Graph>();
    Names names;
    while (!at_end()) statement(*graph, &names, nullptr);
    return graph;
  }

 private:
  struct Named {
    Ref ref;
    int line;
  };
  // Keyed by "%3" for numbered values and "=x" for named ones, so that "%3" in quotes is another name.
  using Names = std::map<std::string, Named, std::less<>>;

  // ---- names ----

  static std::string key_of(const Token& token) {
    return token.kind == TokenKind::percent ? token.text : "=" + token.text;
  }

  Value find(Graph& graph, const Names& names, const Names* outer, const Token& token) {
    const auto it = names.find(key_of(token));
    if (it != names.end()) return graph.value(it->second.ref);
    if (outer != nullptr && outer->contains(key_of(token))) {
      fail_at(token, fmt::format("{} is a value outside this body, which sees only its own: pass it as an input",
                                 describe(token)));
    }
    std::vector<std::string> known;
    for (const auto& [key, named] : names) known.push_back(key[0] == '=' ? key.substr(1) : key);
    fail_at(token,
            fmt::format("there is no value {} above this line{}", describe(token), suggestion(token.text, known)));
  }

  void define(Names* names, const Token& token, Ref ref) {
    const auto [it, is_new] = names->emplace(key_of(token), Named{ref, token.line});
    if (!is_new) {
      fail_at(token, fmt::format("{} is already defined on line {}", describe(token), it->second.line));
    }
  }

  // Names between parentheses, up to `close` or ';'.
  Values values(Graph& graph, const Names& names, const Names* outer) {
    Values list;
    while (!peek().is(')') && !peek().is(';')) {
      if (!list.empty()) expect(',', "or ')' in the list of values");
      list.push_back(find(graph, names, outer, name("a value")));
    }
    return list;
  }

  // ---- statements ----

  void statement(Graph& graph, Names* names, const Names* outer) {
    if (peek().kind == TokenKind::newline) {
      take();
      return;
    }
    if (peek().is_word("fetch")) return fetch(graph, *names, outer);
    if (peek().is_word("assign")) return assign(graph, *names, outer);
    std::vector<Token> left{name("a statement, as in 'y = neg(x)' or 'fetch y = y',")};
    if (left[0].is_word("extent") && at_name()) return extent(left[0], outer != nullptr);
    while (peek().is(',')) {
      take();
      left.push_back(name("a name"));
    }
    if (!peek().is('=')) {
      unexpected(peek().is('(') ? "'=': name the results, as in 'y = neg(x)';" : "'=' after the names");
    }
    take();
    if (peek().is_word("input") || peek().is_word("parameter")) {
      declaration(graph, names, left, outer != nullptr);
    } else if (peek().is_word("gradients")) {
      gradients_statement(graph, names, outer, left);
    } else {
      op_statement(graph, names, outer, left);
    }
    end_line();
  }

  void extent(const Token& keyword, bool is_body) {
    if (is_body) fail_at(keyword, "extents are declared outside of bodies, which see them too");
    if (!has_sizes_) throw WithoutSizes{};
    extent_declaration(keyword);
  }

  void fetch(Graph& graph, const Names& names, const Names* outer) {
    take();
    const Token label = name("the name of the fetch");
    if (label.kind == TokenKind::percent) {
      fail_at(label, fmt::format("a fetch needs a name, as in 'fetch y = {}'", label.text));
    }
    Token source = label;
    if (peek().is('=')) {  // `fetch y` is short for `fetch y = y`
      take();
      source = name("a value");
    }
    const Value value = find(graph, names, outer, source);
    const bool is_body = outer != nullptr;  // whose fetches are positional: their names are free
    if (!is_body && !fetch_names_.emplace(label.text, Named{{}, label.line}).second) {
      fail_at(label, fmt::format("{} is already fetched on line {}", describe(label),
                                 fetch_names_.find(label.text)->second.line));
    }
    graph.mutable_fetches().push_back({label.text, value.ref()});
    end_line();
  }

  void assign(Graph& graph, const Names& names, const Names* outer) {
    const Token at = take();
    const Value parameter = find(graph, names, outer, name("the parameter to assign to"));
    expect('=', "after the parameter");
    const Value value = find(graph, names, outer, name("a value"));
    Tail tail;
    names_tail(&tail);
    count_new(at, 1);
    set_names(&graph, &tail);
    on_line(at, [&] { graph.assign(parameter, value); });
    set_names(&graph, nullptr);
    end_line();
  }

  // Graph::input would search all inputs for the name; the map of names already has it.
  void declaration(Graph& graph, Names* names, const std::vector<Token>& left, bool is_body) {
    const Token keyword = take();
    if (left.size() != 1) fail_at(left[1], fmt::format("{} gives one value", keyword.text));
    const bool is_unnamed = left[0].kind == TokenKind::percent;
    if (is_unnamed ? !is_body : left[0].text.empty()) {
      fail_at(left[0], fmt::format("a name was expected: the left side names the {}", keyword.text));
    }
    Node node;
    node.op = find_op(keyword.text);
    node.types = {type()};
    if (!is_unnamed) node.name = left[0].text;
    Tail tail;
    names_tail(&tail);
    node.scope = tail.scope, node.origin = tail.origin, node.placement = tail.placement;
    count_new(left[0], 1);
    define(names, left[0], {graph.add(std::move(node)), 0});
  }

  void gradients_statement(Graph& graph, Names* names, const Names* outer, const std::vector<Token>& left) {
    const Token keyword = take();
    expect('(', "after gradients");
    Values outputs = values(graph, *names, outer), seeds;
    if (peek().is(';')) {
      take();
      seeds = values(graph, *names, outer);
    } else if (outputs.size() == 2) {  // (loss, seed)
      seeds = {outputs[1]};
      outputs.pop_back();
    } else if (outputs.size() > 2) {
      fail_at(keyword, "several outputs are separated from their seeds by ';', as in gradients(a, b; seed_a, seed_b)");
    }
    expect(')', "after the outputs and seeds");
    if (!peek().is_word("by")) unexpected("'by' and the values to differentiate by");
    take();
    expect('(', "after by");
    const Values inputs = values(graph, *names, outer);
    expect(')', "after the values to differentiate by");

    walked_ += gradient_cost(graph);
    if (walked_ > kMaxWalked) {
      fail_at(keyword, fmt::format("gradients statements walk over more than {} nodes in all", kMaxWalked));
    }
    build(graph, names, left, keyword, nullptr, {}, [&] { return gradients(outputs, inputs, seeds); });
  }

  void op_statement(Graph& graph, Names* names, const Names* outer, const std::vector<Token>& left) {
    const Token at = peek();
    const OpDef& op = find_versioned();
    if (op.is(OpRole::update)) fail_at(at, "assign gives no value: it is a statement, as in 'assign w = x'");
    expect('(', "after the op");
    const Values inputs = values(graph, *names, outer);
    expect(')', "after the inputs");
    const Attrs attrs = attributes(op);
    std::vector<std::shared_ptr<Graph>> bodies;
    while (peek().is('[')) bodies.push_back(body(names));
    build(graph, names, left, at, &op, bodies, [&] {
      return depth_ > 0 ? call_in_body(op, inputs, attrs, bodies, &graph) : call(op, inputs, attrs, bodies, &graph);
    });
  }

  // Reads the tail, runs `make` under its scope and origin, checks and names the results.
  template <class F>
  void build(Graph& graph, Names* names, const std::vector<Token>& left, const Token& at, const OpDef* op,
             const std::vector<std::shared_ptr<Graph>>& bodies, F make) {
    const Tail tail = read_tail();
    const bool is_expanded = op == nullptr || op->is_expanded_at_once() || (depth_ > 0 && op->is_open_in_bodies);
    if (is_expanded && !tail.origin.empty()) {
      fail_at(tail.at, fmt::format("{} is expanded into nodes that name their own origin", describe(at)));
    }
    const NodeId first = graph.size();
    set_names(&graph, &tail);
    const Values made = on_line(at, make);
    set_names(&graph, nullptr);
    std::int64_t added = count_nodes(graph, first);
    for (const auto& parsed : bodies) added -= count_nodes(*parsed);  // counted when they were read
    count_new(at, added);

    if (made.size() != left.size()) {
      fail_at(left[0],
              fmt::format("{} gives {} values, but {} stand on the left", describe(at), made.size(), left.size()));
    }
    if (tail.has_types && tail.types.size() != made.size()) {
      fail_at(tail.at, fmt::format("{} types for {} values", tail.types.size(), made.size()));
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (tail.has_types && !(tail.types[i] == made[i].type())) {
        fail_at(tail.at, fmt::format("{} is {}, but the text says {}", describe(left[i]), to_string(made[i].type()),
                                     to_string(tail.types[i])));
      }
      define(names, left[i], made[i].ref());
    }
  }

  void count_new(const Token& at, std::int64_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes) fail_at(at, fmt::format("more than {} nodes", kMaxNodes));
  }

  // ---- parts of a statement ----

  std::shared_ptr<Graph> body(const Names* outer) {
    const Token open = take();
    if (++depth_ > kMaxDepth) fail_at(open, fmt::format("bodies are nested deeper than {}", kMaxDepth));
    if (peek().kind != TokenKind::newline) unexpected("a new line: a body's statements stand on lines of their own,");
    auto graph = std::make_shared<Graph>();
    Names names;
    while (!peek().is(']')) {
      if (at_end()) fail_at(open, "this body is not closed by a line with ']'");
      statement(*graph, &names, outer);
    }
    take();
    --depth_;
    return graph;
  }

  static void set_names(Graph* graph, const Tail* tail) {
    graph->scope = tail == nullptr ? Name() : tail->scope;
    graph->origin = tail == nullptr ? Name() : tail->origin;
    graph->placement = tail == nullptr ? Placement::any : tail->placement;
  }

  Names fetch_names_;  // of the outermost graph
  bool has_sizes_ = false;
  int depth_ = 0;
  std::int64_t nodes_ = 0;
  std::int64_t walked_ = 0;
};

}  // namespace

std::unique_ptr<Graph> parse_graph(std::string_view text) {
  try {
    return Parser(text).run(nullptr);
  } catch (const WithoutSizes&) {
    fail(ErrorKind::argument,
         "the text has extents, which need sizes: {}\n"
         "hint: GraphText(text).at(sizes), in Python the same",
         GraphText(text).extents().text());
  }
}

std::unique_ptr<Graph> parse_graph_at(std::string_view text, const Extents::Key& sizes) {
  return Parser(text).run(&sizes);
}

}  // namespace paoding
