/* SPDX-License-Identifier: Apache-2.0 */
/* wire/aws_keys.h - reads the files in which Amazon's tools keep keys and
 * settings, and the answers of credential services.
 *
 * Both functions work within the caller's text and copy nothing, so that the
 * caller can wipe a secret.  They keep no state; any thread may call them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* This function gets one setting.  All strings point into the text. `parent` is
 * the setting below which this one is indented, or NULL. */
typedef void rsh_aws_setting(void *ctx, const char *parent, const char *key,
			     const char *value);

/* The kind decides which file the text is from and how the section's header is
 * written. */
enum rsh_aws_section {
	RSH_AWS_CREDENTIALS, /* ~/.aws/credentials: "NAME" */
	RSH_AWS_PROFILE,  /* ~/.aws/config: "profile NAME", or "default" */
	RSH_AWS_SERVICES, /* ~/.aws/config: "services NAME" */
};

/* Reads the settings of a section.  A NUL must follow the text.  The text is
 * changed.  Returns whether the section exists. */
bool rsh_aws_section(char *text, size_t len, enum rsh_aws_section kind,
		     const char *name, rsh_aws_setting *each, void *ctx);

/* Reads the strings of a JSON object, which is the form in which credential
 * services answer: AccessKeyId, SecretAccessKey, Token, Expiration.  Other
 * members are skipped.  A NUL must follow the text.  The text is changed.
 * Returns false if the text is not such an object. */
bool rsh_aws_answer(char *text, size_t len, rsh_aws_setting *each, void *ctx);
/* Does the same with the texts of an XML document, which is the form in which
 * token services answer: AccessKeyId, SecretAccessKey, SessionToken,
 * Expiration.  References to characters are not replaced.  Returns false if the
 * text is not XML. */
bool rsh_aws_xml(char *text, size_t len, rsh_aws_setting *each, void *ctx);
