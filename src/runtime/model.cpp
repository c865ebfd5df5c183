// SPDX-License-Identifier: Apache-2.0
// Model: one store, and executors that calls take in turn.
#include "paoding/model.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/one_line.h"
#include "io/model_file.h"
#include "io/model_signature.h"
#include "paoding/cancellation.h"
#include "paoding/checkpoint.h"
#include "paoding/graph_text.h"
#include "paoding/programs.h"
#include "runtime/batch_rows.h"

namespace paoding {
namespace {

using Types = std::map<std::string, Type>;

Types inputs_of(const Graph& graph) {
  Types types;
  for (const NodeId id : graph.inputs()) types[graph.node(id).name.str()] = graph.node(id).types[0];
  return types;
}

std::string text_of(const Types& types) {
  std::string text;
  for (const auto& [name, type] : types) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", one_line(name), to_string(type));
  }
  return text;
}

}  // namespace

struct Model::State {
  // A graph of the file, as it is called; of a text with extents the one of the smallest sizes.
  struct Entry {
    std::unique_ptr<Graph> graph;
    Types inputs;
    std::optional<GraphText> family = {};  // a text with extents
  };
  // Calls say which graph they run: by the position of its name, and sizes of its extents.
  using Call = Programs::Key;
  // Programs that one call at a time uses: one per graph and sizes, in one arena.
  using Executor = Programs;

  State(ModelFile given, const ModelOptions& model_options, std::string_view given_name)
      : name(given_name), file(std::move(given)), options(model_options) {
    if (options.executors < 1) {
      fail(ErrorKind::argument, "{}: executors = {}, needs to be at least 1", name, options.executors);
    }
    options.compile.assign = false;
    check_sealed_files(file, name);
    check_finite_parameters(file, name);
    Graph all;  // of every graph's parameters
    for (const auto& [graph_name, text] : file.graphs) {
      entries[graph_name] = parsed(graph_name, text);
      declare(*entries[graph_name].graph, &all);
    }
    check_names();
    make_signatures();
    try {
      // This comes before memory is taken for them: a graph can claim parameters of any size at no cost to the file.
      check_restorable(all, file.parameters, true);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::argument) throw;
      fail(ErrorKind::file, "{}: its parameters are not those of its graphs: {}", name, error.what());
    }
    parameters.emplace(all, options.compile.device);
    for (const NodeId id : all.parameters()) {
      const std::string& parameter = all.node(id).name.str();
      parameters->set(parameter, file.parameters.at(parameter));
    }
    file.parameters.clear();
  }

  Entry parsed(const std::string& graph_name, const std::string& text) const {
    try {
      GraphText read(text);
      Entry entry{read.at(read.extents().smallest()), {}};
      if (!read.extents().empty()) entry.family = std::move(read);
      entry.inputs = inputs_of(*entry.graph);
      if (entry.graph->fetches().empty()) fail(ErrorKind::file, "it fetches nothing");
      return entry;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::cancelled) throw;
      fail(ErrorKind::file, "{}: graph '{}': {}", name, one_line(graph_name), error.what());
    }
  }

  // The numbers of "search[12,64]" and "search[time=12,batch=64]"; none when the name has no such brackets.
  static std::set<std::int64_t> shape_of(std::string_view graph_name) {
    std::set<std::int64_t> numbers;
    for (const auto& [extent, size] : named_sizes(graph_name)) numbers.insert(size);
    if (!numbers.empty()) return numbers;
    const std::size_t open = graph_name.find('[');
    if (open == graph_name.npos || !graph_name.ends_with(']')) return {};
    std::string_view rest = graph_name.substr(open + 1);
    while (!rest.empty()) {
      std::int64_t number = 0;
      const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), number);
      if (read.ec != std::errc() || (*read.ptr != ',' && *read.ptr != ']')) return {};
      numbers.insert(number);
      rest.remove_prefix(static_cast<std::size_t>(read.ptr - rest.data()) + 1);
    }
    return numbers;
  }

  // Graphs are chosen by their names too: one under another's name would be fed tensors that do not fit.
  void check_names() const {
    // Per entry point, input name, rank and axis: the least and the largest extent.
    std::map<std::tuple<std::string_view, std::string_view, int, int>, std::pair<std::int64_t, std::int64_t>> extents;
    const auto for_each_extent = [&](const auto& visit) {
      for (const auto& [graph_name, entry] : entries) {
        const std::set<std::int64_t> numbers = shape_of(graph_name);
        if (numbers.empty() || entry.family) continue;
        for (const auto& [input, type] : entry.inputs) {
          for (int axis = 0; axis < type.shape.rank(); ++axis) {
            const std::int64_t extent = type.shape[axis];
            auto& seen = extents.try_emplace({entry_of(graph_name), input, type.shape.rank(), axis}, extent, extent)
                             .first->second;
            visit(seen, extent, numbers, graph_name, input);
          }
        }
      }
    };
    for_each_extent([](auto& seen, std::int64_t extent, const auto&...) {
      seen = {std::min(seen.first, extent), std::max(seen.second, extent)};
    });
    for_each_extent([&](const auto& seen, std::int64_t extent, const auto& numbers, const auto& graph,
                        const auto& input) {
      if (seen.first == seen.second || numbers.contains(extent)) return;
      fail(ErrorKind::file, "{}: graph '{}': an extent of its input '{}' is {}, which is none of its name's numbers",
           name, one_line(graph), one_line(input), extent);
    });
  }

  void declare(const Graph& graph, Graph* all) const {
    for (const NodeId id : graph.parameters()) {
      const Node& node = graph.node(id);
      const Type& type = node.types[0];
      const Value there = all->find(node.name.str());
      if (there.valid() && there.type() == type) continue;
      if (there.valid()) {
        fail(ErrorKind::file, "{}: its graphs have the parameter '{}' as {} and as {}", name, one_line(node.name.str()),
             to_string(there.type()), to_string(type));
      }
      all->parameter(node.name.str(), type.dtype, type.shape);
    }
  }

  // Where a file says its batch, an entry point without a signature is an error of the file.
  void make_signatures() {
    try {
      check_batch(file);
      for (const std::string& entry : entry_names()) {
        const ModelSignature made = file.batch.empty() ? ModelSignature{} : signature_of(sized_of(entry), file.batch);
        if (made.has_batch) batched.emplace(entry, made);
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::argument) throw;
      fail(ErrorKind::file, "{}: {}", name, error.what());
    }
  }

  std::vector<SizedGraph> sized_of(std::string_view entry) const {
    std::vector<SizedGraph> graphs;
    for (const auto& [graph_name, text] : file.graphs) {
      if (entry_of(graph_name) != entry) continue;
      for (SizedGraph& each : sized_graphs(graph_name, GraphText(text))) graphs.push_back(std::move(each));
    }
    if (graphs.empty()) no_entry(entry);
    return graphs;
  }

  // The signature by which calls of an entry point may have any number of rows; null: they may not.
  const ModelSignature* rows_of_calls(std::string_view entry) const {
    const auto found = batched.find(entry);
    return found == batched.end() ? nullptr : &found->second;
  }

  // The rows of a call.
  std::int64_t rows_in(std::string_view entry, const ModelSignature& signature, const Types& given) const {
    std::int64_t rows = -1;
    const std::string* first = nullptr;
    for (const ModelTensor& input : signature.inputs) {
      const auto fed = given.find(input.name);
      if (input.batch_axis < 0 || fed == given.end() || fed->second.shape.rank() != std::ssize(input.shape)) continue;
      const std::int64_t here = fed->second.shape[input.batch_axis];
      if (first != nullptr && here != rows) {
        fail(ErrorKind::shape, "{}: '{}': {} is {} in '{}' and {} in '{}'", name, one_line(entry), one_line(file.batch),
             rows, one_line(*first), here, one_line(input.name));
      }
      rows = here;
      first = &input.name;
    }
    return rows;
  }

  // The types of a call with as many rows as a graph takes.
  static Types with_rows(const ModelSignature& signature, Types types, std::int64_t rows) {
    for (const ModelTensor& input : signature.inputs) {
      const auto fed = types.find(input.name);
      if (input.batch_axis < 0 || fed == types.end() || fed->second.shape.rank() != std::ssize(input.shape)) continue;
      fed->second.shape = fed->second.shape.with_dim(input.batch_axis, rows);
    }
    return types;
  }

  // The rows that graphs take of calls like this: those of the smallest that holds `rows`, else the most; 0: no graph
  // is for such a call.
  std::int64_t rows_for(std::string_view entry, const ModelSignature& signature, const Types& given,
                        std::int64_t rows) const {
    std::int64_t enough = 0, most = 0;
    const auto consider = [&](std::int64_t size) {
      most = std::max(most, size);
      if (size >= rows && (enough == 0 || size < enough)) enough = size;
    };
    for (const auto& [graph_name, each] : entries) {
      if (entry_of(graph_name) != entry) continue;
      if (!each.family) {
        const std::map<std::string, std::int64_t> sizes = named_sizes(graph_name);
        const std::int64_t size = sizes.at(file.batch);
        if (size > 0 && each.inputs == with_rows(signature, given, size)) consider(size);
        continue;
      }
      if (!std::equal(given.begin(), given.end(), each.inputs.begin(), each.inputs.end(), alike)) continue;
      const ExtentSpec& batch =
          each.family->extents().specs()[static_cast<std::size_t>(each.family->extents().index_of(file.batch))];
      const auto bucket_of = [&](std::int64_t tried) -> std::int64_t {  // 0: there is none
        if (tried < 1 || tried < batch.minimum || tried > batch.maximum) return 0;
        const Extents& extents = each.family->extents();
        try {
          const Extents::Key bucket = extents.bucket_of(each.family->sizes_of(with_rows(signature, given, tried)));
          return bucket[static_cast<std::size_t>(extents.index_of(file.batch))];
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::shape) throw;
          return 0;
        }
      };
      // Where every size is a bucket, powers of two keep the number of programs small.
      const std::int64_t exact = rows >= 1 && bucket_of(rows) == rows && bucket_of(rows + 1) == rows + 1
                                     ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)))
                                     : rows;
      for (const std::int64_t tried : {exact, std::int64_t{1}, batch.minimum, batch.maximum}) {
        if (const std::int64_t size = bucket_of(tried); size > 0) consider(size);
      }
    }
    return enough > 0 ? enough : most;
  }

  // Graphs whose inputs are these come first, then texts with extents.
  Call call_for(std::string_view entry, const Types& given) const {
    bool is_there = false, has_names = false;
    std::string takes;
    std::int64_t position = -1, of_family = -1;
    const GraphText* family = nullptr;
    for (const auto& [graph_name, each] : entries) {
      ++position;
      if (entry_of(graph_name) != entry) continue;
      if (!each.family && each.inputs == given) return {position};
      is_there = true;
      const bool fits = std::equal(given.begin(), given.end(), each.inputs.begin(), each.inputs.end(), alike);
      if (each.family && fits && family == nullptr) family = &*each.family, of_family = position;
      has_names = has_names || std::equal(given.begin(), given.end(), each.inputs.begin(), each.inputs.end(),
                                          [](const auto& a, const auto& b) { return a.first == b.first; });
      takes += "\n  " + (each.family ? each.family->inputs_text() : text_of(each.inputs));
    }
    if (family != nullptr) return call_at(of_family, *family, given);
    if (!is_there) no_entry(entry);
    fail(has_names ? ErrorKind::shape : ErrorKind::argument, "{}: '{}' got {}; it takes{}", name, one_line(entry),
         given.empty() ? "nothing" : text_of(given), takes);
  }

  // The same input but for its extents.
  static bool alike(const Types::value_type& a, const Types::value_type& b) {
    return a.first == b.first && a.second.dtype == b.second.dtype && a.second.shape.rank() == b.second.shape.rank();
  }

  Call call_at(std::int64_t position, const GraphText& family, const Types& given) const {
    const Extents& extents = family.extents();
    Call sizes = family.sizes_of(given);
    const Extents::Key bucket = extents.bucket_of(sizes);
    if (bucket != sizes) {
      fail(ErrorKind::shape, "{}: there are programs for buckets: inputs of {} are padded to {}", name,
           extents.text_of(sizes), extents.text_of(bucket));
    }
    sizes.insert(sizes.begin(), position);
    return sizes;
  }

  std::unique_ptr<Graph> graph_of(const Call& call) const {
    const Entry& entry = std::next(entries.begin(), call[0])->second;
    return entry.family ? entry.family->at({call.begin() + 1, call.end()}) : entry.graph->clone();
  }

  std::unique_ptr<Executor> made_executor() const {
    auto made_now =
        std::make_unique<Executor>([this](const Call& call) { return graph_of(call); }, options.compile, &*parameters);
    made_now->keep_at_most(std::max(made_now->keeps_at_most(), std::ssize(entries)));
    return made_now;
  }

  // Every bucket, or where there are more than an executor keeps the smallest.
  std::vector<Extents::Key> few_buckets(const Extents& extents) const {
    const std::int64_t most = made_executor()->keeps_at_most();
    std::int64_t count = 1;
    for (std::size_t i = 0; i < extents.specs().size() && count <= most; ++i) {
      const ExtentSpec& spec = extents.specs()[i];
      if (spec.maximum - spec.minimum >= static_cast<std::int64_t>(Extents::kMostListed))
        return std::vector<Extents::Key>{extents.smallest()};
      count *= std::ssize(extents.buckets(i));
    }
    return count <= most ? extents.every_bucket() : std::vector<Extents::Key>{extents.smallest()};
  }

  struct Plan;
  Plan plan_for(std::string_view entry, const Types& given) const;
  std::map<std::string, Tensor> run_call(const Call& call, const std::map<std::string, Tensor>& feeds);
  std::map<std::string, Tensor> run_rows(std::string_view entry, const ModelSignature& signature, std::int64_t rows,
                                         const std::map<std::string, Tensor>& feeds);

  [[noreturn]] void no_entry(std::string_view entry) const {
    fail(ErrorKind::argument, "{}: there is no entry point '{}'; there are: {}", name, one_line(entry),
         one_line(entry_names()));
  }

  std::vector<std::string> entry_names() const {
    std::set<std::string> names;
    for (const auto& [graph_name, each] : entries) names.emplace(entry_of(graph_name));
    return {names.begin(), names.end()};
  }

  // An executor for one call; given back by give_back().
  std::unique_ptr<Executor> take(const Call& call) {
    using namespace std::chrono_literals;
    std::unique_lock lock(mutex);
    while (idle.empty() && made == options.executors) {
      given_back.wait_for(lock, 20ms);
      if (!idle.empty()) break;
      lock.unlock();
      CancelScope::poll();
      lock.lock();
    }
    if (idle.empty()) {
      ++made;
      return made_executor();
    }
    // One that has compiled this graph, if there is one.
    const auto knows_it = [&](const auto& each) { return each->has(call); };
    auto chosen = std::find_if(idle.rbegin(), idle.rend(), knows_it);
    if (chosen == idle.rend()) chosen = idle.rbegin();
    std::unique_ptr<Executor> executor = std::move(*chosen);
    idle.erase(std::next(chosen).base());
    return executor;
  }
  void give_back(std::unique_ptr<Executor> executor) {
    {
      const std::lock_guard lock(mutex);
      idle.push_back(std::move(executor));
    }
    given_back.notify_one();
  }

  std::string name;
  ModelFile file;
  ModelOptions options;
  std::map<std::string, Entry, std::less<>> entries;           // by graph name
  std::map<std::string, ModelSignature, std::less<>> batched;  // entry points that take any number of rows
  std::optional<Parameters> parameters;
  std::mutex mutex, preparing;
  std::condition_variable given_back;
  std::vector<std::unique_ptr<Executor>> idle;  // the one used last at the end
  int made = 0;
};

Model Model::load(const std::filesystem::path& path, const Device& device) {
  ModelOptions options;
  options.compile.device = device;
  return load(path, options);
}

Model Model::load(const std::filesystem::path& path, const ModelOptions& options) {
  return Model(load_model_file(path), options, path.string());
}

Model::Model(ModelFile file, const ModelOptions& options, std::string_view name)
    : state_(std::make_shared<State>(std::move(file), options, name)) {}

const ModelFile& Model::file() const { return state_->file; }
const Parameters& Model::parameters() const { return *state_->parameters; }
std::vector<std::string> Model::entries() const { return state_->entry_names(); }

std::vector<std::map<std::string, Type>> Model::inputs(std::string_view entry) const {
  std::vector<Types> all;
  for (const auto& [graph_name, each] : state_->entries) {
    if (entry_of(graph_name) == entry) all.push_back(each.inputs);
  }
  if (all.empty()) state_->no_entry(entry);
  return all;
}

ModelSignature Model::signature(std::string_view entry) const {
  const std::vector<SizedGraph> graphs = state_->sized_of(entry);
  try {
    return signature_of(graphs, file().batch);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::argument) throw;
    fail(ErrorKind::argument, "{}: {}", state_->name, error.what());
  }
}

std::unique_ptr<Graph> Model::graph(std::string_view name) const {
  const auto found = state_->entries.find(name);
  if (found != state_->entries.end()) {
    if (!found->second.family) return found->second.graph->clone();
    fail(ErrorKind::argument,
         "{}: graph '{}' has extents: {}; GraphText(file().graphs.at(name)).at(sizes) is one of them", state_->name,
         one_line(name), found->second.family->extents().text());
  }
  std::vector<std::string> others;
  for (const auto& [graph_name, each] : state_->entries) {
    if (entry_of(graph_name) == entry_of(name)) others.push_back(graph_name);
  }
  if (others.empty()) state_->no_entry(entry_of(name));
  fail(ErrorKind::argument, "{}: there is no graph '{}'; there are: {}", state_->name, one_line(name),
       one_line(others));
}

namespace {

std::map<std::string, Type> types_of(const std::map<std::string, Tensor>& feeds) {
  std::map<std::string, Type> types;
  for (const auto& [input, tensor] : feeds) types[input] = tensor.type();
  return types;
}

}  // namespace

// How a call becomes runs: one graph, or, by rows, graphs of `size` rows, one after the other.
struct Model::State::Plan {
  std::optional<Call> whole;
  const ModelSignature* signature = nullptr;
  std::int64_t rows = 0;
};

Model::State::Plan Model::State::plan_for(std::string_view entry, const Types& given) const {
  const ModelSignature* const signature = rows_of_calls(entry);
  if (signature == nullptr) return {call_for(entry, given)};
  const std::int64_t rows = rows_in(entry, *signature, given);
  const std::int64_t size = rows < 0 ? 0 : rows_for(entry, *signature, given, rows);
  if (size == 0 || size == rows) return {call_for(entry, given)};
  call_for(entry, with_rows(*signature, given, size));  // an error where more is wrong than the rows
  return {std::nullopt, signature, rows};
}

std::map<std::string, Tensor> Model::State::run_call(const Call& call, const std::map<std::string, Tensor>& feeds) {
  // A call that throws leaves an executor that can be used again: a Program does.
  struct Taken {
    State& state;
    std::unique_ptr<Executor> executor;
    ~Taken() { state.give_back(std::move(executor)); }
  } taken{*this, take(call)};
  return taken.executor->at(call).run(feeds);
}

std::map<std::string, Tensor> Model::State::run_rows(std::string_view entry, const ModelSignature& signature,
                                                     std::int64_t rows, const std::map<std::string, Tensor>& feeds) {
  const Types given = types_of(feeds);
  std::map<std::string, std::vector<Tensor>> parts;
  std::int64_t from = 0;
  do {
    const std::int64_t size = rows_for(entry, signature, given, rows - from), count = std::min(size, rows - from);
    std::map<std::string, Tensor> some = feeds;
    for (const ModelTensor& input : signature.inputs) {
      if (input.batch_axis < 0) continue;
      Tensor& fed = some.at(input.name);
      fed = rows_of(fed, input.batch_axis, from, count, size);
    }
    const std::map<std::string, Tensor> found = run_call(call_for(entry, with_rows(signature, given, size)), some);
    for (const ModelTensor& result : signature.results) {
      parts[result.name].push_back(rows_of(found.at(result.name), result.batch_axis, 0, count, count));
    }
    from += count;
  } while (from < rows);
  std::map<std::string, Tensor> results;
  for (const ModelTensor& result : signature.results) {
    const std::vector<Tensor>& all = parts.at(result.name);
    results[result.name] = all.size() == 1 ? all[0] : joined_rows(all, result.batch_axis);
  }
  return results;
}

std::map<std::string, Tensor> Model::run(std::string_view entry, const std::map<std::string, Tensor>& feeds) const {
  const State::Plan plan = state_->plan_for(entry, types_of(feeds));
  return plan.whole ? state_->run_call(*plan.whole, feeds) : state_->run_rows(entry, *plan.signature, plan.rows, feeds);
}

void Model::check(std::string_view entry, const std::map<std::string, Type>& feeds) const {
  state_->plan_for(entry, feeds);
}

void Model::prepare() const {
  std::vector<State::Call> calls;
  for (std::int64_t position = 0; const auto& [graph_name, entry] : state_->entries) {
    State::Call call{position++};
    if (!entry.family) {
      calls.push_back(call);
      continue;
    }
    const std::vector<Extents::Key> buckets = state_->few_buckets(entry.family->extents());
    for (const Extents::Key& bucket : buckets) {
      calls.push_back(call);
      calls.back().insert(calls.back().end(), bucket.begin(), bucket.end());
    }
  }
  const std::lock_guard lock(state_->preparing);
  struct Held {
    State& state;
    std::vector<std::unique_ptr<State::Executor>> all;
    ~Held() {
      for (auto& each : all) state.give_back(std::move(each));
    }
  } held{*state_, {}};
  for (int i = 0; i < state_->options.executors; ++i) {
    held.all.push_back(state_->take(calls[0]));
    for (const State::Call& call : calls) held.all.back()->at(call);
  }
}

std::map<std::string, Tensor> Model::run(const std::map<std::string, Tensor>& feeds) const {
  const std::vector<std::string> names = entries();
  if (names.size() > 1) {
    fail(ErrorKind::argument, "{}: there are several entry points: {}; say which", state_->name, one_line(names));
  }
  return run(names.front(), feeds);
}

}  // namespace paoding
