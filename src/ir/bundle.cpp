#include "ir/bundle.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/files.h"
#include "base/json_util.h"
#include "ir/generate.h"
#include "ir/names.h"
#include "ir/safetensors.h"

namespace stitch::ir {
namespace {

constexpr uintmax_t kMaxProgramJson = 256u << 20;
constexpr size_t kMaxCases = 10000;

bool safe_case_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
}

// A bundle may come from anyone: no member may lead out of its folder.
Result<fs::path> member(const fs::path& folder, const fs::path& relative) {
  const fs::path path = folder / relative;
  std::error_code ec;
  const fs::path real = fs::weakly_canonical(path, ec), root = fs::weakly_canonical(folder, ec);
  const auto inside = std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first == root.end();
  if (ec || !inside) return fail(ErrorKind::bad_input, "{} leads out of the bundle; do not use this bundle.", path.string());
  // Opening a pipe or a device could wait for ever.
  if (fs::exists(path, ec) && !fs::is_regular_file(path, ec)) return fail(ErrorKind::bad_input, "{} is no plain file; do not use this bundle.", path.string());
  return path;
}

Result<TensorInfo> read_info(const Json& j, const std::string& what) {
  TensorInfo info;
  STITCH_TRY(info.name, get_string(j, "name", what));
  STITCH_TRY(const std::string dtype, get_string(j, "dtype", what));
  const auto d = dtype_from_name(dtype);
  if (!d) return fail(ErrorKind::bad_input, "{} has the unknown dtype \"{}\".", what, dtype);
  info.type.dtype = *d;
  STITCH_TRY(const Json* shape, get_array(j, "shape", what));
  for (const Json& e : *shape) {
    if (!e.is_number_integer()) return fail(ErrorKind::bad_input, "{} has a shape that is no list of integers.", what);
    info.type.shape.push_back(e.get<int64_t>());
  }
  if (j.contains("random")) {
    STITCH_TRY(info.random, get_bool(j, "random", what));
  }
  if (j.contains("parameter")) {
    STITCH_TRY(info.parameter, get_bool(j, "parameter", what));
  }
  if (!j.contains("generator") || j.at("generator").is_null()) return info;
  const Json& g = j.at("generator");
  Generator gen;
  STITCH_TRY(gen.kind, get_string(g, "kind", what));
  if (gen.kind != "normal" && gen.kind != "uniform" && gen.kind != "randint" && gen.kind != "constant")
    return fail(ErrorKind::bad_input, "{} has the unknown generator \"{}\".", what, gen.kind);
  STITCH_TRY(gen.a, get_number(g, "a", what));
  STITCH_TRY(gen.b, get_number(g, "b", what));
  if (!std::isfinite(gen.a) || !std::isfinite(gen.b) || std::abs(gen.a) > 1e18 || std::abs(gen.b) > 1e18)
    return fail(ErrorKind::bad_input, "{} has a generator with impossible bounds.", what);
  STITCH_TRY(const int64_t seed, get_integer(g, "seed", what));
  gen.seed = static_cast<uint64_t>(seed);
  if (g.contains("structure")) {
    STITCH_TRY(gen.structure, get_string(g, "structure", what));
    const std::string_view known[] = {"", "lower", "upper", "symmetric", "rows"};
    if (std::find(std::begin(known), std::end(known), gen.structure) == std::end(known))
      return fail(ErrorKind::bad_input, "{} has the unknown structure \"{}\".", what, gen.structure);
  }
  info.generator = gen;
  return info;
}

Result<std::vector<TensorInfo>> read_infos(const Json& j, const char* key, const Graph& g, const std::vector<int32_t>& nodes, const std::string& file) {
  STITCH_TRY(const Json* list, get_array(j, key, file));
  std::vector<TensorInfo> out;
  for (const Json& entry : *list) {
    STITCH_TRY(TensorInfo info, read_info(entry, fmt::format("An entry of \"{}\" in {}", key, file)));
    out.push_back(std::move(info));
  }
  bool same = out.size() == nodes.size();
  for (size_t i = 0; same && i < out.size(); ++i) {
    const Node& n = g.nodes[static_cast<size_t>(nodes[i])];
    same = n.name == out[i].name && n.type() == out[i].type;
  }
  if (!same) return fail(ErrorKind::bad_input, "\"{}\" in {} does not agree with the graph; the bundle is damaged.", key, file);
  return out;
}

Result<Graph> read_graph(const Json& j, const std::string& file) {
  STITCH_TRY(const Json* lines, get_array(j, "graph", file));
  std::string text;
  for (const Json& l : *lines) {
    if (!l.is_string()) return fail(ErrorKind::bad_input, "\"graph\" in {} must be a list of lines.", file);
    text += l.get<std::string>() + "\n";
  }
  STITCH_TRY(Graph g, parse(text, fmt::format("\"graph\" in {}", file)));
  for (Status s : {check_names(g), validate(g)}) {
    if (s) continue;
    Error e = s.error();
    e.message = fmt::format("\"graph\" in {} is wrong: {}{} Capture the program again.", file, static_cast<char>(std::tolower(e.message[0])), e.message.substr(1));
    return tl::make_unexpected(std::move(e));
  }
  return g;
}

// {"tensor": i}, {"value": scalar}, {"tuple": [...]}, {"list": [...]} or {"dict": {...}}; `tensors` is how many i may name.
// parse_json has limited the depth.
Status check_spec(const Json& spec, size_t tensors, const std::string& what) {
  const auto wrong = [&] { return fail(ErrorKind::bad_input, "{} is no valid tree of arguments; the bundle is damaged.", what); };
  if (!spec.is_object() || spec.size() != 1) return wrong();
  const std::string& kind = spec.begin().key();
  const Json& body = spec.begin().value();
  if (kind == "tensor") return body.is_number_unsigned() && body.get<uint64_t>() < tensors ? Status{} : wrong();
  if (kind == "value") return body.is_primitive() ? Status{} : wrong();
  if (kind == "dict" ? !body.is_object() : (kind != "tuple" && kind != "list") || !body.is_array()) return wrong();
  for (const Json& child : body) STITCH_CHECK_OK(check_spec(child, tensors, what));
  return {};
}

// The tuple of positional arguments, with keyword arguments beside it where there are any.
Status check_input_spec(const Json& spec, size_t tensors, const std::string& what) {
  if (!spec.is_object() || !spec.contains("kwargs")) return check_spec(spec, tensors, what);
  Json positional = spec;
  positional.erase("kwargs");
  STITCH_CHECK_OK(check_spec(positional, tensors, what));
  return check_spec(Json{{"dict", spec.at("kwargs")}}, tensors, what);
}

Status read_specs(const Json& j, const std::string& file, Bundle& b) {
  b.input_spec = j.value("input_spec", Json());
  b.output_spec = j.value("output_spec", Json());
  const auto user = static_cast<size_t>(std::count_if(b.graph.outputs.begin(), b.graph.outputs.end(), [](const Output& o) { return o.kind == Output::Kind::user; }));
  if (!b.input_spec.is_null()) STITCH_CHECK_OK(check_input_spec(b.input_spec, b.inputs.size(), fmt::format("\"input_spec\" in {}", file)));
  if (!b.output_spec.is_null()) STITCH_CHECK_OK(check_spec(b.output_spec, user, fmt::format("\"output_spec\" in {}", file)));
  return {};
}

Status read_case_names(const Json& j, const std::string& file, Bundle& b) {
  STITCH_TRY(const Json* cases, get_array(j, "cases", file));
  if (cases->size() > kMaxCases) return fail(ErrorKind::bad_input, "{} names {} cases; at most {} are allowed.", file, cases->size(), kMaxCases);
  for (const Json& c : *cases) {
    if (!c.is_string() || !safe_case_name(c.get<std::string>()))
      return fail(ErrorKind::bad_input, "{} names a case that is no plain name; do not use this bundle.", file);
    b.case_names.push_back(c.get<std::string>());
  }
  return {};
}

Status check_version(const Json& j, const std::string& file) {
  STITCH_TRY(const std::string format, get_string(j, "format", file));
  STITCH_TRY(const int64_t version, get_integer(j, "version", file));
  if (format != "stitch") return fail(ErrorKind::bad_input, "{} is not a stitch bundle.", file);
  if (version > kBundleVersion)
    return fail(ErrorKind::unsupported, "{} was made by a newer version (bundle format {}, this program reads up to {}); update stitchcuda.", file, version, kBundleVersion);
  if (version < 1) return fail(ErrorKind::bad_input, "{} has the impossible bundle version {}.", file, version);
  return {};
}

Status read_origin(const Json& j, const std::string& file, Bundle& b) {
  STITCH_TRY(const Json* o, get_object(j, "origin", file));
  STITCH_TRY(b.origin.file, get_string(*o, "file", file));
  STITCH_TRY(b.origin.sha256, get_string(*o, "sha256", file));
  STITCH_TRY(b.origin.kind, get_string(*o, "kind", file));
  STITCH_TRY(b.origin.torch_version, get_string(*o, "torch_version", file));
  STITCH_TRY(b.origin.seed, get_integer(*o, "seed", file));
  for (const auto& [key, value] : {std::pair{"file", &b.origin.file}, {"sha256", &b.origin.sha256}, {"kind", &b.origin.kind}, {"torch_version", &b.origin.torch_version}})
    STITCH_CHECK_OK(check_name(*value, fmt::format("\"{}\" of \"origin\" in {}", key, file)));
  STITCH_TRY(const Json* p, get_object(j, "precision", file));
  STITCH_TRY(b.precision.allow_tf32_matmul, get_bool(*p, "allow_tf32_matmul", file));
  STITCH_TRY(b.precision.allow_tf32_conv, get_bool(*p, "allow_tf32_conv", file));
  return {};
}

Json info_json(const TensorInfo& i) {
  Json j{{"name", i.name}, {"dtype", std::string(name_of(i.type.dtype))}, {"shape", i.type.shape}, {"generator", nullptr}};
  if (i.generator)
    j["generator"] = {{"kind", i.generator->kind}, {"a", i.generator->a}, {"b", i.generator->b}, {"seed", static_cast<int64_t>(i.generator->seed)}};
  if (i.random) j["random"] = true;
  if (i.generator && !i.generator->structure.empty()) j["generator"]["structure"] = i.generator->structure;
  return j;
}

Json weight_json(const TensorInfo& i) {
  Json j = info_json(i);
  j["parameter"] = i.parameter;
  return j;
}

Json bundle_json(const Bundle& b) {
  Json graph = Json::array(), inputs = Json::array(), weights = Json::array();
  const std::string text = print(b.graph);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    graph.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  for (const TensorInfo& i : b.inputs) inputs.push_back(info_json(i));
  for (const TensorInfo& i : b.weights) weights.push_back(weight_json(i));
  return Json{{"format", "stitch"},
              {"version", kBundleVersion},
              {"name", b.name},
              {"mode", b.mode},
              {"origin", {{"file", b.origin.file}, {"sha256", b.origin.sha256}, {"kind", b.origin.kind}, {"torch_version", b.origin.torch_version}, {"seed", b.origin.seed}}},
              {"precision", {{"allow_tf32_matmul", b.precision.allow_tf32_matmul}, {"allow_tf32_conv", b.precision.allow_tf32_conv}}},
              {"graph", graph},
              {"inputs", inputs},
              {"weights", weights},
              {"input_spec", b.input_spec},
              {"output_spec", b.output_spec},
              {"cases", b.case_names},
              {"has_weights", b.has_weights}};
}

Status check_finite(const Tensor& t, bool infinities, const std::string& file) {
  if (!is_floating(t.type.dtype)) return {};
  const int64_t n = numel(t.type.shape);
  for (int64_t i = 0; i < n; ++i) {
    const double v = get(t, i);
    if (std::isfinite(v) || (infinities && std::isinf(v))) continue;
    return fail(ErrorKind::bad_input, "The weight \"{}\" in {} is {} at element {}; repair the weights and capture again.", t.name, file, std::isnan(v) ? "NaN" : "infinite", i);
  }
  return {};
}

// The entry of a tensor, which must have the type the graph wants; nullptr if it is not stored but generated.
Result<const SafetensorsFile::Entry*> entry_of(const SafetensorsFile& f, const fs::path& file, const std::string& name, const TensorType& type, bool generated) {
  const auto* entry = f.find(name);
  if (!entry && generated) return nullptr;
  if (!entry) return fail(ErrorKind::bad_input, "{} lacks the tensor \"{}\"; the bundle is incomplete.", file.string(), name);
  if (!(entry->type == type))
    return fail(ErrorKind::bad_input, "\"{}\" in {} is {}, but the program needs {}.", name, file.string(), to_string(entry->type), to_string(type));
  return entry;
}

// A tensor of the file by name, or made by its generator.
Result<Tensor> take(const SafetensorsFile& f, const fs::path& file, const std::string& name, const TensorInfo& info, std::string_view salt = "") {
  STITCH_TRY(const SafetensorsFile::Entry* entry, entry_of(f, file, name, info.type, info.generator.has_value()));
  if (!entry) return generate(info, salt);
  STITCH_TRY(Tensor t, f.read(*entry));
  t.name = info.name;
  return t;
}

bool all_generated(const std::vector<TensorInfo>& infos) {
  return std::all_of(infos.begin(), infos.end(), [](const TensorInfo& i) { return i.generator.has_value(); });
}

// Headers only: every tensor that the program needs is there with the right type.
Status check_files(const Bundle& b) {
  if (b.has_weights && !all_generated(b.weights)) {
    STITCH_TRY(const fs::path file, member(b.folder, "weights.safetensors"));
    STITCH_TRY(const SafetensorsFile f, SafetensorsFile::open(file));
    for (const TensorInfo& w : b.weights) STITCH_CHECK_OK(entry_of(f, file, w.name, w.type, w.generator.has_value()).map([](auto) {}));
  }
  for (const std::string& c : b.case_names) {
    STITCH_TRY(const fs::path file, member(b.folder, fs::path("cases") / (c + ".safetensors")));
    STITCH_TRY(const SafetensorsFile f, SafetensorsFile::open(file));
    for (const TensorInfo& i : b.inputs) STITCH_CHECK_OK(entry_of(f, file, "input." + i.name, i.type, i.generator.has_value()).map([](auto) {}));
  }
  return {};
}

Result<Bundle> bundle_from_json(const Json& j, const std::string& what) {
  STITCH_CHECK_OK(check_version(j, what));
  Bundle b;
  STITCH_TRY(b.name, get_string(j, "name", what));
  if (b.name.empty()) return fail(ErrorKind::bad_input, "\"name\" in {} is empty; give the program a name.", what);
  STITCH_CHECK_OK(check_name(b.name, fmt::format("\"name\" in {}", what)));
  STITCH_TRY(b.mode, get_string(j, "mode", what));
  if (b.mode != "eval" && b.mode != "train") return fail(ErrorKind::bad_input, "{} has the mode \"{}\", which is neither eval nor train.", what, b.mode.substr(0, 40));
  STITCH_TRY(b.graph, read_graph(j, what));
  STITCH_TRY(b.inputs, read_infos(j, "inputs", b.graph, b.graph.inputs(), what));
  STITCH_TRY(b.weights, read_infos(j, "weights", b.graph, b.graph.weights(), what));
  STITCH_CHECK_OK(read_origin(j, what, b));
  STITCH_CHECK_OK(read_specs(j, what, b));
  STITCH_TRY(b.has_weights, get_bool(j, "has_weights", what));
  STITCH_CHECK_OK(read_case_names(j, what, b));
  return b;
}

}  // namespace

std::vector<TensorType> types_of(const std::vector<TensorInfo>& infos) {
  std::vector<TensorType> types;
  for (const TensorInfo& i : infos) types.push_back(i.type);
  return types;
}

std::vector<TensorType> output_types(const Bundle& b) {
  std::vector<TensorType> types;
  for (const Output& o : b.graph.outputs) types.push_back(b.graph.type_of(o.value));
  return types;
}

Result<Bundle> read_bundle(const fs::path& folder) {
  std::error_code ec;
  if (!fs::is_directory(folder, ec)) return fail(ErrorKind::bad_input, "{} is not a .stitch folder; capture the program first.", folder.string());
  STITCH_TRY(const fs::path file, member(folder, "program.json"));
  if (fs::file_size(file, ec) > kMaxProgramJson && !ec) return fail(ErrorKind::bad_input, "{} is larger than a program can be.", file.string());
  STITCH_TRY(const std::string text, read_file(file));
  STITCH_TRY(const Json j, parse_json(text, file.string()));
  STITCH_TRY(Bundle b, bundle_from_json(j, file.string()));
  b.folder = folder;
  STITCH_CHECK_OK(check_files(b));
  return b;
}

Result<std::vector<Tensor>> read_weights(const Bundle& b) {
  std::vector<Tensor> out;
  if (b.weights.empty()) return out;
  if (all_generated(b.weights)) {
    for (const TensorInfo& w : b.weights) {
      STITCH_TRY(Tensor t, generate(w, ""));
      out.push_back(std::move(t));
    }
    return out;
  }
  if (!b.has_weights) return fail(ErrorKind::bad_input, "{} holds no weights; capture it again without --no-weights.", b.folder.string());
  STITCH_TRY(const fs::path file, member(b.folder, "weights.safetensors"));
  STITCH_TRY(const SafetensorsFile f, SafetensorsFile::open(file));
  for (const TensorInfo& w : b.weights) {
    STITCH_TRY(Tensor t, take(f, file, w.name, w));
    STITCH_CHECK_OK(check_finite(t, !w.parameter, file.string()));
    out.push_back(std::move(t));
  }
  return out;
}

Result<Case> read_case(const Bundle& b, const std::string& name) {
  if (!safe_case_name(name)) return fail(ErrorKind::bad_input, "\"{}\" is not a case name.", name);
  STITCH_TRY(const fs::path file, member(b.folder, fs::path("cases") / (name + ".safetensors")));
  STITCH_TRY(const SafetensorsFile f, SafetensorsFile::open(file));
  Case c;
  c.name = name;
  for (const TensorInfo& i : b.inputs) {
    STITCH_TRY(Tensor t, take(f, file, "input." + i.name, i, name));
    c.inputs.push_back(std::move(t));
  }
  const bool has_expected = std::any_of(f.entries().begin(), f.entries().end(), [](const auto& e) { return e.name.starts_with("expected."); });
  if (!has_expected) return c;
  for (const Output& o : b.graph.outputs) {
    STITCH_TRY(Tensor t, take(f, file, "expected." + o.name, {o.name, b.graph.type_of(o.value), {}}));
    c.expected.push_back(std::move(t));
  }
  return c;
}

namespace {

// What would make the written bundle unreadable is a mistake of the caller, found before anything is written.
Status check_contents(const Bundle& b, const std::vector<Tensor>& weights, const std::vector<Case>& cases) {
  const auto matches = [](const Tensor& t, const TensorType& type) { return t.type == type && t.data.size() == static_cast<size_t>(bytes_of(type)); };
  if (!weights.empty() && weights.size() != b.weights.size()) return fail(ErrorKind::internal, "The bundle \"{}\" names {} weights, {} are given.", b.name, b.weights.size(), weights.size());
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i].name != b.weights[i].name || !matches(weights[i], b.weights[i].type))
      return fail(ErrorKind::internal, "The weight \"{}\" does not match its entry in the bundle \"{}\".", weights[i].name, b.name);
  for (const Case& c : cases) {
    bool good = safe_case_name(c.name) && c.inputs.size() == b.inputs.size() && (c.expected.empty() || c.expected.size() == b.graph.outputs.size());
    for (size_t i = 0; good && i < c.inputs.size(); ++i) good = matches(c.inputs[i], b.inputs[i].type);
    for (size_t i = 0; good && i < c.expected.size(); ++i) good = matches(c.expected[i], b.graph.type_of(b.graph.outputs[i].value));
    if (!good) return fail(ErrorKind::internal, "The case \"{}\" does not match the inputs and outputs of the bundle \"{}\".", c.name, b.name);
  }
  return {};
}

Status write_case(const fs::path& file, const Bundle& b, const Case& c) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    tensors.push_back(c.inputs[i]);
    tensors.back().name = "input." + b.inputs[i].name;
  }
  for (size_t i = 0; i < c.expected.size(); ++i) {
    tensors.push_back(c.expected[i]);
    tensors.back().name = "expected." + b.graph.outputs[i].name;
  }
  return write_safetensors(file, tensors);
}

Status write_contents(const fs::path& folder, const Bundle& b, const std::vector<Tensor>& weights, const std::vector<Case>& cases) {
  Bundle full = b;
  full.has_weights = !weights.empty() || b.weights.empty();
  full.case_names.clear();
  for (const Case& c : cases) full.case_names.push_back(c.name);
  const Json json = bundle_json(full);
  STITCH_CHECK_OK(bundle_from_json(json, fmt::format("The bundle \"{}\"", b.name)).map([](const Bundle&) {}));
  STITCH_CHECK_OK(make_folder(folder / "cases"));
  if (!weights.empty()) STITCH_CHECK_OK(write_safetensors(folder / "weights.safetensors", weights));
  for (const Case& c : cases) STITCH_CHECK_OK(write_case(folder / "cases" / (c.name + ".safetensors"), full, c));
  return write_file(folder / "program.json", dump(json, 1) + "\n");
}

}  // namespace

Status write_bundle(const fs::path& folder, const Bundle& b, const std::vector<Tensor>& weights, const std::vector<Case>& cases) {
  STITCH_CHECK_OK(check_contents(b, weights, cases));
  fs::path target = fs::absolute(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  std::error_code ec;
  const bool old = fs::exists(fs::symlink_status(target, ec));
  if (old && !fs::is_regular_file(target / "program.json", ec))
    return fail(ErrorKind::bad_input, "{} exists and is no .stitch bundle; choose another name or remove it.", target.string());
  const std::string stem = fmt::format(".{}.{}", target.filename().string(), ::getpid());
  const fs::path staging = target.parent_path() / (stem + ".new"), aside = target.parent_path() / (stem + ".old");
  remove_tree(staging);
  Status s = write_contents(staging, b, weights, cases);
  if (s) {
    ec.clear();
    if (old) fs::rename(target, aside, ec);
    if (!ec) fs::rename(staging, target, ec);
    if (ec) {
      s = fail(ErrorKind::environment, "{} cannot be put in place: {}.", target.string(), ec.message());
      std::error_code back;
      if (old && !fs::exists(target, back)) fs::rename(aside, target, back);
    } else {
      remove_tree(aside);
    }
  }
  if (!s) remove_tree(staging);
  return s;
}

}  // namespace stitch::ir
