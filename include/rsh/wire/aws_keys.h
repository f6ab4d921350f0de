/* SPDX-License-Identifier: Apache-2.0 */
/* wire/aws_keys.h - the texts in which Amazon's tools keep keys and settings.
 *
 * Both functions work within the caller's text and copy nothing, so that the
 * caller can wipe a secret. They keep no state; any thread may call. */
#ifndef RSH_WIRE_AWS_KEYS_H
#define RSH_WIRE_AWS_KEYS_H

#include <stdbool.h>
#include <stddef.h>

/* Takes a setting; all strings are in the text. `parent` is the setting below
 * which this one is indented, or NULL. */
typedef void rsh_aws_setting(void *ctx, const char *parent, const char *key,
			     const char *value);

/* Which of its sections is read of which file. */
enum rsh_aws_section {
	RSH_AWS_CREDENTIALS, /* ~/.aws/credentials: "NAME" */
	RSH_AWS_PROFILE,  /* ~/.aws/config: "profile NAME" but for "default" */
	RSH_AWS_SERVICES, /* ~/.aws/config: "services NAME" */
};

/* Reads the settings of a section.  A NUL has to follow the text, which is
 * changed. Returns whether there is such a section. */
bool rsh_aws_section(char *text, size_t len, enum rsh_aws_section kind,
		     const char *name, rsh_aws_setting *each, void *ctx);

/* Reads the strings of a JSON object, as services of credentials give them:
 * AccessKeyId, SecretAccessKey, Token, Expiration.  Other members are skipped.
 * A NUL has to follow the text, which is changed.  Returns false for what is no
 * such object. */
bool rsh_aws_answer(char *text, size_t len, rsh_aws_setting *each, void *ctx);

#endif
