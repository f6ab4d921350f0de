/* wire/format.h - the two formats of checkpoint files, told apart by the ends
 * of their names. */
#ifndef RSH_WIRE_FORMAT_H
#define RSH_WIRE_FORMAT_H

enum rsh_format {
	RSH_FORMAT_CKPT,
	RSH_FORMAT_SAFETENSORS,
	RSH_FORMAT_COUNT /* neither */
};

/* The format of a file that is called `name`; RSH_FORMAT_COUNT if it is no
 * checkpoint, or nothing stands before the suffix. */
enum rsh_format rsh_format_of(const char *name);
/* ".ckpt", ".safetensors". */
const char *rsh_format_suffix(enum rsh_format f);

#endif
