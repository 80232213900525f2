#include "base/json_schema.h"

// Without this, valijson ends the process on a schema that it cannot read.
#define VALIJSON_USE_EXCEPTIONS 1
#include <string_view>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "base/json_full.h"
#include "base/json_util.h"

namespace stitch {
namespace {

// valijson's adapter is for nlohmann::json, whose objects are sorted; order does not matter to a schema.
nlohmann::json sorted(const Json& j) { return nlohmann::json::parse(dump(j, -1)); }

// valijson's "[tasks]", "[0]" as a JSON pointer (RFC 6901): "/tasks/0".
std::string pointer(const std::vector<std::string>& context) {
  std::string out;
  for (const std::string& part : context) {
    if (part.size() < 2 || part.front() != '[') continue;  // "<root>"
    out += '/';
    for (const char c : std::string_view(part).substr(1, part.size() - 2)) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  }
  return out;
}

}  // namespace

Status validate_json(const Json& schema_json, const Json& value_json) {
  try {
    const nlohmann::json schema_value = sorted(schema_json), value = sorted(value_json);
    valijson::Schema schema;
    valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
    parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(schema_value), schema);
    valijson::ValidationResults results;
    if (valijson::Validator().validate(schema, valijson::adapters::NlohmannJsonAdapter(value), &results)) return {};
    // The last result is the innermost: the member that is wrong, not "an item of tasks is wrong".
    std::string path, reason = "does not fit the schema";
    valijson::ValidationResults::Error error;
    size_t depth = 0;
    while (results.popError(error)) {
      if (error.context.size() < depth) continue;
      depth = error.context.size();
      path = pointer(error.context);
      reason = error.description;
    }
    return fail(ErrorKind::bad_input, "The value at {} is not allowed: {}", path.empty() ? "the top" : path, reason);
  } catch (const std::exception& e) {
    return fail(ErrorKind::internal, "The schema cannot be used: {}", e.what());
  }
}

}  // namespace stitch
