/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The page that tells userspace of device removal.
 */
#ifndef KEEL_REMOVAL_H
#define KEEL_REMOVAL_H

#include <linux/types.h>

struct keel_dev;
struct vm_area_struct;

/* removal.c */
int keel_removal_init(void);
void keel_removal_exit(void);
bool keel_state_is_gone(const struct keel_dev *kdev);
void keel_state_put(struct keel_dev *kdev);
int keel_state_mmap(struct keel_dev *kdev, struct vm_area_struct *vma);

#endif /* KEEL_REMOVAL_H */
