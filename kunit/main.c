// SPDX-License-Identifier: GPL-2.0
/*
 * keel_kunit.ko: unit tests of keel's core units, run when it is loaded.
 *
 * The name of a case starts with the ids of the requirements that it proves, in
 * lower case with underscores: dm_4_dm_6_threads proves DM-4 and DM-6. If only
 * some parameters of a case prove a requirement, their descriptions start with
 * the ids: "PD-4: another domain". scripts/kunit prints both alike.
 */
#include <linux/module.h>

#include "compat.h"

KEEL_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);
MODULE_DESCRIPTION("Unit tests of keel");
MODULE_LICENSE("GPL");
