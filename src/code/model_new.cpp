#include "base/files.h"
#include "base/json_full.h"
#include "base/json_util.h"
#include "code/coder.h"

namespace stitch::code {
namespace {

// A Python string literal. JSON's escapes are Python's too, except that a lone surrogate cannot occur here.
std::string python_string(const std::string& s) { return Json(s).dump(-1, ' ', true, Json::error_handler_t::replace); }

void fill(std::string& text, const std::string& key, const std::string& value) {
  const std::string mark = "@" + key + "@";
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + value.size())) text.replace(at, mark.size(), value);
}

}  // namespace

Result<std::string> write_model_new(const ir::Bundle& b, const std::string& reference_source, const std::string& program_folder) {
  STITCH_TRY(std::string text, read_file(source_root() / "python/stitchcuda/templates/model_new.py.in"));
  Json random = Json::array(), names = Json::array();
  for (const ir::TensorInfo& i : b.inputs)
    if (i.random && i.generator)
      random.push_back({{"name", i.name}, {"kind", i.generator->kind}, {"shape", i.type.shape}, {"dtype", std::string(ir::name_of(i.type.dtype))}});
  for (const ir::TensorInfo& w : b.weights) names.push_back(w.name);
  const auto literal = [](const Json& j) { return python_string(dump(j, -1)); };
  fill(text, "FOLDER", python_string(program_folder));
  fill(text, "INPUT_SPEC", literal(b.input_spec));
  fill(text, "OUTPUT_SPEC", literal(b.output_spec));
  fill(text, "RANDOM_INPUTS", literal(random));
  fill(text, "WEIGHT_NAMES", literal(names));
  fill(text, "REFERENCE_SOURCE", reference_source.empty() ? "None" : python_string(reference_source));
  return text;
}

}  // namespace stitch::code
