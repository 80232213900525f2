#include "base/json_schema.h"

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
    std::string path = "", reason = "does not fit the schema";
    valijson::ValidationResults::Error error;
    size_t depth = 0;
    while (results.popError(error)) {
      if (error.context.size() < depth) continue;
      depth = error.context.size();
      path.clear();
      for (const std::string& part : error.context) path += part == "<root>" ? "" : part;
      reason = error.description;
    }
    return fail(ErrorKind::bad_input, "The value at {} is not allowed: {}", path.empty() ? "the top" : path, reason);
  } catch (const std::exception& e) {
    return fail(ErrorKind::internal, "The schema cannot be used: {}", e.what());
  }
}

}  // namespace stitch
