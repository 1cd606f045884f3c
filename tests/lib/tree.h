/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tree of live objects of a device in debugfs, and the counts of the rdma
 * tool.
 */
#ifndef TREE_H
#define TREE_H

#include <stdbool.h>
#include <stddef.h>

struct tree_obj {
	int depth;
	char kind[16];
	unsigned int id;
	unsigned int refs;
	int pid;
	char comm[20];
	bool closing;
	char text[160];		/* depends on the kind */
	char holds[80];		/* "pd 1, dm 2" */
	char held_by[256];	/* "mr 3, mr 4 and 2 more" */
};

struct tree {
	int count;
	struct tree_obj *objs;
};

/* Return the text of the file; the caller frees it. */
char *tree_text(const char *dev);
/*
 * Return the text once it no longer changes: the kernel may still hold
 * references for QPs that were connected or have sent, and are about to run.
 */
char *tree_settled(const char *dev);
/* Fail with the first line that differs from @before. */
void tree_check_same(const char *file, int line, const char *dev,
		     const char *before);
#define CHECK_SAME_TREE(before)	\
	tree_check_same(__FILE__, __LINE__, KEEL0, before)
void tree_read(const char *dev, struct tree *tree);
void tree_free(struct tree *tree);
/* Return NULL if there is no such object. */
const struct tree_obj *tree_find(const struct tree *tree, const char *kind,
				 unsigned int id);
/* Return the only object of a kind; fail if there are more or fewer. */
const struct tree_obj *tree_only(const struct tree *tree, const char *kind);
/* Return the number of live objects of a kind, or of all with NULL. */
int tree_count(const char *dev, const char *kind);
/*
 * If the tree is not empty, return its first line in @why. A device that does
 * not exist has an empty tree.
 */
bool tree_is_empty(const char *dev, char *why, size_t size);
/* Return the number behind a word in the text of an object, e.g. "domain". */
unsigned long long tree_value(const struct tree_obj *obj, const char *word);

/* Return how many "pd", "mr" or "ctx" of processes the rdma tool counts. */
int res_count(const char *dev, const char *what);

#endif /* TREE_H */
