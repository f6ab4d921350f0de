/* SPDX-License-Identifier: Apache-2.0 */
/* unit/test_util_blake3.c - hashes of the test vectors of BLAKE3
 * (test_vectors.json of its authors): byte i of an input is i % 251. */
#include "config.h"

#include "rsh/util/blake3.h"
#include "tests.h"

#define LONGEST 102400

static const struct vector {
	size_t n;
	const char *hash;
} vectors[] = {
	{ 0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9"
	  "adc112b7cc9a93cae41f3262" },
	{ 1, "2d3adedff11b61f14c886e35afa036736dcd87a7"
	  "4d27b5c1510225d0f592e213" },
	{ 63, "e9bc37a594daad83be9470df7f7b3798297c3d83"
	  "4ce80ba85d6e207627b7db7b" },
	{ 64, "4eed7141ea4a5cd4b788606bd23f46e212af9cac"
	  "ebacdc7d1f4c6dc7f2511b98" },
	{ 65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c9"
	  "3a63f2d8d1c30ecb6b263dee" },
	{ 1023, "10108970eeda3eb932baac1428c7a2163b0e924c"
	  "9a9e25b35bba72b28f70bd11" },
	{ 1024, "42214739f095a406f3fc83deb889744ac00df831"
	  "c10daa55189b5d121c855af7" },
	{ 1025, "d00278ae47eb27b34faecf67b4fe263f82d54129"
	  "16c1ffd97c8cb7fb814b8444" },
	{ 2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576"
	  "467e838ed6f2529b85fba24a" },
	{ 2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c4"
	  "26c95c1af0b6879522563030" },
	{ 3072, "b98cb0ff3623be03326b373de6b9095218513e64"
	  "f1ee2edd2525c7ad1e5cffd2" },
	{ 3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2"
	  "c850cfe644e327d22d3e1cd3" },
	{ 4096, "015094013f57a5277b59d8475c0501042c0b642e"
	  "531b0a1c8f58d2163229e969" },
	{ 4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d"
	  "890d15c96a1c25b8aa0fb995" },
	{ 5120, "9cadc15fed8b5d854562b26a9536d9707cadeda9"
	  "b143978f319ab34230535833" },
	{ 5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d"
	  "4155a55f8fbd79f2fe154cff" },
	{ 6144, "3e2e5b74e048f3add6d21faab3f83aa44d3b2278"
	  "afb83b80b3c35164ebeca205" },
	{ 6145, "f1323a8631446cc50536a9f705ee5cb619424d46"
	  "887f3c376c695b70e0f0507f" },
	{ 7168, "61da957ec2499a95d6b8023e2b0e604ec7f6b50e"
	  "80a9678b89d2628e99ada77a" },
	{ 7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf288"
	  "55a03d435f8cfe74605e7817" },
	{ 8192, "aae792484c8efe4f19e2ca7d371d8c467ffb1074"
	  "8d8a5a1ae579948f718a2a63" },
	{ 8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf48"
	  "8116ceb94a36d0f5f1b7bc3b" },
	{ 16384, "f875d6646de28985646f34ee13be9a576fd515f7"
	  "6b5b0a26bb324735041ddde4" },
	{ 31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32"
	  "e7abc4fb4c6cdcce94895c47" },
	{ 102400, "bc3e3d41a1146b069abffad3c0d44860cf664390"
	  "afce4d9661f7902e7943e085" },
};

static void hash_in_parts(const uint8_t *data, size_t n, size_t part,
			  char text[2 * RSH_BLAKE3_BYTES + 1])
{
	uint8_t out[RSH_BLAKE3_BYTES];
	struct rsh_blake3 h;

	rsh_blake3_init(&h);
	for (size_t at = 0; at < n; at += part)
		rsh_blake3_add(&h, data + at, n - at < part ? n - at : part);
	rsh_blake3_end(&h, out);
	for (size_t i = 0; i < RSH_BLAKE3_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", out[i]);
}

TEST(test_vectors)
{
	static const size_t parts[] = { LONGEST, 1024, 1000, 64, 63, 7 };
	cleanup_free uint8_t *data = malloc(LONGEST);
	char text[2 * RSH_BLAKE3_BYTES + 1];

	assert_non_null(data);
	for (size_t i = 0; i < LONGEST; i++)
		data[i] = (uint8_t)(i % 251);
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
		for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
			hash_in_parts(data, vectors[i].n, parts[p], text);
			assert_string_equal(text, vectors[i].hash);
		}
}
