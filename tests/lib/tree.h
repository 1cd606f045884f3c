/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tree of live objects of a device, as debugfs shows it, and what the
 * rdma tool says.
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
	char text[160];		/* what is particular to the kind */
	char holds[80];		/* "pd 1, dm 2" */
	char held_by[256];	/* "mr 3, mr 4 and 2 more" */
};

struct tree {
	int count;
	struct tree_obj *objs;
};

/* The file as it is; to be freed. */
char *tree_text(const char *dev);
/*
 * Once it does not change any more: where QPs were connected or have sent, the
 * kernel may still be about to look at them, with a reference.
 */
char *tree_settled(const char *dev);
/* Fails, with the first line that differs, unless the tree is this one. */
void tree_check_same(const char *file, int line, const char *dev,
		     const char *before);
#define CHECK_SAME_TREE(before)	\
	tree_check_same(__FILE__, __LINE__, KEEL0, before)
void tree_read(const char *dev, struct tree *tree);
void tree_free(struct tree *tree);
/* NULL if there is none. */
const struct tree_obj *tree_find(const struct tree *tree, const char *kind,
				 unsigned int id);
/* The only one of its kind; fails if there are more or fewer. */
const struct tree_obj *tree_only(const struct tree *tree, const char *kind);
/* How many of a kind there are now; NULL counts all. */
int tree_count(const char *dev, const char *kind);
/* If not, the first line is in why. A device that is not there has none. */
bool tree_is_empty(const char *dev, char *why, size_t size);
/* The number after a word in the text of an object, e.g. "domain". */
unsigned long long tree_value(const struct tree_obj *obj, const char *word);

/* How many "pd", "mr", "ctx" of programs the rdma tool counts on a device. */
int res_count(const char *dev, const char *what);

#endif /* TREE_H */
