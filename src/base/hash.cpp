#include "base/hash.h"

#include <openssl/evp.h>

#include <stdexcept>

#include "base/files.h"

namespace stitch {
namespace {
EVP_MD_CTX* ctx(void* p) { return static_cast<EVP_MD_CTX*>(p); }
}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_ || EVP_DigestInit_ex(ctx(context_), EVP_sha256(), nullptr) != 1) throw std::runtime_error("SHA-256 is not available");
}
Sha256::~Sha256() { EVP_MD_CTX_free(ctx(context_)); }

Sha256& Sha256::raw(std::string_view bytes) {
  EVP_DigestUpdate(ctx(context_), bytes.data(), bytes.size());
  return *this;
}
Sha256& Sha256::field(std::string_view bytes) {
  const uint64_t n = bytes.size();
  raw({reinterpret_cast<const char*>(&n), sizeof n});
  return raw(bytes);
}
std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(ctx(context_), digest, &size);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::string sha256_hex(std::string_view bytes) { return Sha256().raw(bytes).hex(); }

Result<std::string> sha256_of_file(const std::filesystem::path& file) {
  STITCH_TRY(const std::string bytes, read_file(file));
  return sha256_hex(bytes);
}

}  // namespace stitch
