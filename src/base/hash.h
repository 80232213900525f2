#pragma once
// SHA-256 (OpenSSL): content addresses and integrity checks. Candidates are hostile, so nothing weaker is used.
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace stitch {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  // Appends length-prefixed data, so that ("ab","c") and ("a","bc") differ.
  Sha256& field(std::string_view bytes);
  Sha256& raw(std::string_view bytes);
  std::string hex();  // finishes; 64 lower-case digits

 private:
  void* context_;
};

std::string sha256_hex(std::string_view bytes);
Result<std::string> sha256_of_file(const std::filesystem::path& file);

}  // namespace stitch
