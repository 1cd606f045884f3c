// SPDX-License-Identifier: GPL-2.0
/*
 * Reading debugfs keel/<device>/objects. A line is
 *
 *	mr 4 refs 1 pid 812 (demo) [closing] ... holds pd 1 held by x 2, y 3
 *
 * indented by two spaces a level.
 */
#include "t.h"
#include "tree.h"

static void tree_path(const char *dev, char *path, size_t size)
{
	snprintf(path, size, "/sys/kernel/debug/keel/%s/objects", dev);
}

char *tree_text(const char *dev)
{
	char path[128];

	tree_path(dev, path, sizeof(path));
	return t_read_file(path);
}

char *tree_settled(const char *dev)
{
	char *text = tree_text(dev), *next;
	bool same;

	for (;;) {
		usleep(50000);
		next = tree_text(dev);
		same = !strcmp(text, next);
		free(text);
		if (same)
			return next;
		text = next;
	}
}

void tree_check_same(const char *file, int line, const char *dev,
		     const char *before)
{
	char *text = tree_text(dev), *after;
	size_t len;

	/* The kernel may hold a reference for a QP that it is about to run. */
	if (strcmp(text, before)) {
		free(text);
		text = tree_settled(dev);
	}
	after = text;
	while (*after && *after == *before) {
		/* Compare line by line. */
		len = strcspn(after, "\n") + 1;
		if (strncmp(after, before, len))
			break;
		after += len;
		before += len;
	}
	if (strcmp(after, before))
		t_fail(file, line, "objects: got \"%.*s\", want \"%.*s\"",
		       (int)strcspn(after, "\n"), after,
		       (int)strcspn(before, "\n"), before);
	free(text);
}

/* Cut the line at a word, and copy the rest behind the word. */
static void cut(char *line, const char *word, char *rest, size_t size)
{
	char *at = strstr(line, word);

	*rest = '\0';
	if (!at)
		return;
	snprintf(rest, size, "%s", at + strlen(word));
	*at = '\0';
}

static void parse_line(char *line, struct tree_obj *obj)
{
	int at = 0, len = strspn(line, " ");
	char *rest;

	memset(obj, 0, sizeof(*obj));
	if (len % 2)
		FAIL("got an indent of %d, want an even one: %s", len, line);
	obj->depth = len / 2;
	cut(line, " held by ", obj->held_by, sizeof(obj->held_by));
	cut(line, " holds ", obj->holds, sizeof(obj->holds));
	if (sscanf(line, " %15s %u refs %u pid %d (%19[^)])%n", obj->kind,
		   &obj->id, &obj->refs, &obj->pid, obj->comm, &at) != 5 || !at)
		FAIL("got an object line that cannot be read: %s", line);
	rest = line + at;
	if (!strncmp(rest, " closing", 8)) {
		obj->closing = true;
		rest += 8;
	}
	snprintf(obj->text, sizeof(obj->text), "%s", rest + (*rest == ' '));
}

void tree_read(const char *dev, struct tree *tree)
{
	char *text = tree_text(dev), *save = NULL, *line;
	int room = 16;

	tree->count = 0;
	tree->objs = malloc(room * sizeof(*tree->objs));
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (tree->count == room)
			tree->objs = realloc(tree->objs, (room *= 2) *
						sizeof(*tree->objs));
		parse_line(line, &tree->objs[tree->count++]);
	}
	free(text);
}

void tree_free(struct tree *tree)
{
	free(tree->objs);
}

const struct tree_obj *tree_find(const struct tree *tree, const char *kind,
				 unsigned int id)
{
	int i;

	for (i = 0; i < tree->count; i++)
		if (!strcmp(tree->objs[i].kind, kind) && tree->objs[i].id == id)
			return &tree->objs[i];
	return NULL;
}

const struct tree_obj *tree_only(const struct tree *tree, const char *kind)
{
	const struct tree_obj *found = NULL;
	int i, n = 0;

	for (i = 0; i < tree->count; i++) {
		if (strcmp(tree->objs[i].kind, kind))
			continue;
		found = &tree->objs[i];
		n++;
	}
	if (n != 1)
		FAIL("objects of kind %s: got %d, want 1", kind, n);
	return found;
}

int tree_count(const char *dev, const char *kind)
{
	struct tree tree;
	int i, n = 0;

	tree_read(dev, &tree);
	for (i = 0; i < tree.count; i++)
		n += !kind || !strcmp(tree.objs[i].kind, kind);
	tree_free(&tree);
	return n;
}

bool tree_is_empty(const char *dev, char *why, size_t size)
{
	char path[128], line[256];
	FILE *f;

	tree_path(dev, path, sizeof(path));
	f = fopen(path, "re");
	if (!f)
		return true;
	if (!fgets(line, sizeof(line), f)) {
		fclose(f);
		return true;
	}
	fclose(f);
	line[strcspn(line, "\n")] = '\0';
	snprintf(why, size, "left behind: %s", line);
	return false;
}

unsigned long long tree_value(const struct tree_obj *obj, const char *word)
{
	const char *at = obj->text;
	size_t len = strlen(word);

	while ((at = strstr(at, word))) {
		if ((at == obj->text || at[-1] == ' ') && at[len] == ' ')
			return strtoull(at + len + 1, NULL, 0);
		at += len;
	}
	FAIL("got \"%s\", want a %s in it", obj->text, word);
}

int res_count(const char *dev, const char *what)
{
	char *text = t_shell("rdma resource show %s | grep -c '^dev %s .*pid ' || :",
			     what, dev);
	int n = atoi(text);

	free(text);
	return n;
}
