/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The page that tells userspace that its device has gone.
 */
#ifndef KEEL_GONE_H
#define KEEL_GONE_H

#include <linux/types.h>

struct keel_dev;
struct vm_area_struct;

/* gone.c */
int keel_gone_init(void);
void keel_gone_exit(void);
void keel_state_free(struct keel_dev *kdev);
int keel_state_mmap(struct keel_dev *kdev, struct vm_area_struct *vma);

#endif /* KEEL_GONE_H */
