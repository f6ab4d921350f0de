/* SPDX-License-Identifier: Apache-2.0 */
/* wire/aws_keys.h - the texts in which Amazon's tools keep keys and settings.
 *
 * Both functions work on the text where it lies and copy nothing, so that who
 * has read a secret can wipe it.  They keep nothing; any thread may call. */
#ifndef RSH_WIRE_AWS_KEYS_H
#define RSH_WIRE_AWS_KEYS_H

#include <stdbool.h>
#include <stddef.h>

/* Is told a setting; both strings lie in the text. */
typedef void rsh_aws_setting(void *ctx, const char *key, const char *value);

/* Reads the settings of a profile from ~/.aws/credentials, or from ~/.aws/config
 * (`is_config`), where its section is called "profile NAME" but for "default".
 * Settings within settings, which are indented, are passed over.  A NUL has to
 * stand behind the text, which is changed.  Returns whether there is such a
 * section. */
bool rsh_aws_profile(char *text, size_t len, const char *profile,
		     bool is_config, rsh_aws_setting *each, void *ctx);

/* Reads the strings of a JSON object, as services of credentials give them:
 * AccessKeyId, SecretAccessKey, Token, Expiration.  What else it holds is
 * passed over.  A NUL has to stand behind the text, which is changed.  Returns
 * false for what is no such object. */
bool rsh_aws_answer(char *text, size_t len, rsh_aws_setting *each, void *ctx);

#endif
