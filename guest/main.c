// SPDX-License-Identifier: GPL-2.0
/*
 * The device: probe, remove, changes of its configuration.
 */
#include <linux/hdreg.h>
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio_ids.h>

#include "pollux_blk.h"

#define PART_BITS 4
#define PREFIX_MOST 16

static char *only = "";
module_param(only, charp, 0444);
MODULE_PARM_DESC(only, "Which devices to drive, with commas: by name (virtio0) or address (0000:00:04.0); the others are left to virtio_blk");

static char *prefix = "vd";
module_param(prefix, charp, 0444);
MODULE_PARM_DESC(prefix, "What the names of disks begin with");

static int major;
static DEFINE_IDA(indices);

/* --- names --------------------------------------------------------------------------------------- */

/* Is @name among the words of @list, between commas? */
static bool lists(const char *list, const char *name)
{
	size_t length = strlen(name);
	const char *end;

	for (;; list = end + 1) {
		end = strchrnul(list, ',');
		if (end - list == length && !memcmp(list, name, length))
			return true;
		if (!*end)
			return false;
	}
}

/* Is this device ours? */
static bool is_chosen(struct virtio_device *vdev)
{
	return !*only || lists(only, dev_name(&vdev->dev)) ||
		(vdev->dev.parent && lists(only, dev_name(vdev->dev.parent)));
}

/* vda … vdz, vdaa … */
static void write_name(int index, char *name)
{
	char letters[8];
	int at = sizeof(letters) - 1;

	letters[at] = 0;
	do {
		letters[--at] = 'a' + index % 26;
		index = index / 26 - 1;
	} while (index >= 0);
	snprintf(name, DISK_NAME_LEN, "%s%s", prefix, letters + at);
}

static int is_named(struct device *dev, void *name)
{
	return !strcmp(dev_name(dev), name);
}

static int has_child(struct device *dev, void *name)
{
	return device_for_each_child(dev, name, is_named);
}

/* The first index whose name no disk of this driver has, nor one of virtio_blk. */
static int find_index(struct virtio_device *vdev, char *name)
{
	int index, first = 0;

	for (;;) {
		index = ida_alloc_range(&indices, first, (1 << (MINORBITS - PART_BITS)) - 1, GFP_KERNEL);
		if (index < 0)
			return index;
		write_name(index, name);
		if (!bus_for_each_dev(vdev->dev.bus, NULL, name, has_child))
			return index;
		ida_free(&indices, index);
		first = index + 1;
	}
}

/* --- the disk ------------------------------------------------------------------------------------ */

static int get_geometry(struct gendisk *gendisk, struct hd_geometry *geometry)
{
	struct pollux_disk *disk = gendisk->private_data;
	int error = 0;

	mutex_lock(&disk->gone);
	if (!disk->vdev) {
		error = -ENXIO;
	} else if (virtio_has_feature(disk->vdev, VIRTIO_BLK_F_GEOMETRY)) {
		virtio_cread(disk->vdev, struct virtio_blk_config, geometry.cylinders, &geometry->cylinders);
		virtio_cread(disk->vdev, struct virtio_blk_config, geometry.heads, &geometry->heads);
		virtio_cread(disk->vdev, struct virtio_blk_config, geometry.sectors, &geometry->sectors);
	} else {
		/* What everybody says who has none. */
		geometry->heads = 1 << 6;
		geometry->sectors = 1 << 5;
		geometry->cylinders = get_capacity(gendisk) >> 11;
	}
	mutex_unlock(&disk->gone);
	return error;
}

#ifndef POLLUX_HAS_GETGEO_OF_DISK
static int get_geometry_of_device(struct block_device *device, struct hd_geometry *geometry)
{
	return get_geometry(device->bd_disk, geometry);
}
#endif

static void free_disk(struct gendisk *gendisk)
{
	struct pollux_disk *disk = gendisk->private_data;

	ida_free(&indices, disk->index);
	pollux_queues_free(disk);
	mutex_destroy(&disk->switching);
	mutex_destroy(&disk->gone);
	kfree(disk);
}

static const struct block_device_operations operations = {
	.owner = THIS_MODULE,
#ifdef POLLUX_HAS_GETGEO_OF_DISK
	.getgeo = get_geometry,
#else
	.getgeo = get_geometry_of_device,
#endif
	.free_disk = free_disk,
};

/* --- changes of the configuration ---------------------------------------------------------------- */

static void config_work(struct work_struct *work)
{
	pollux_update_capacity(container_of(work, struct pollux_disk, config_work));
}

static void config_changed(struct virtio_device *vdev)
{
	struct pollux_disk *disk = vdev->priv;

	if (!READ_ONCE(disk->removing))
		queue_work(pollux_workers, &disk->config_work);
}

/* --- the device ---------------------------------------------------------------------------------- */

static int alloc_tags(struct pollux_disk *disk)
{
	unsigned int index;
	int error;

	disk->tags.ops = &pollux_mq_ops;
	disk->tags.queue_depth = pollux_queues_depth(disk);
	disk->tags.numa_node = NUMA_NO_NODE;
	disk->tags.flags = COMPAT_TAG_FLAGS | BLK_MQ_F_NO_SCHED_BY_DEFAULT;
	disk->tags.cmd_size = sizeof(struct pollux_request);
	disk->tags.driver_data = disk;
	disk->tags.nr_hw_queues = disk->queue_count;
	disk->tags.nr_maps = HCTX_MAX_TYPES;
	error = blk_mq_alloc_tag_set(&disk->tags);
	/* Where memory is short there are fewer. */
	for (index = 0; !error && index < disk->queue_count; index++)
		disk->queues[index].depth = disk->tags.queue_depth;
	return error;
}

/* Makes the disk, which nobody sees yet. */
static int alloc_gendisk(struct pollux_disk *disk, const char *name)
{
	struct pollux_limits limits;
	struct gendisk *gendisk;
	int error = pollux_read_limits(disk, &limits);

	if (error)
		return error;
	gendisk = compat_alloc_disk(&disk->tags, &limits, disk);
	if (IS_ERR(gendisk))
		return PTR_ERR(gendisk);
	disk->gendisk = gendisk;
	strscpy(gendisk->disk_name, name, DISK_NAME_LEN);
	gendisk->major = major;
	gendisk->first_minor = disk->index << PART_BITS;
	gendisk->minors = 1 << PART_BITS;
	gendisk->private_data = disk;
	gendisk->fops = &operations;
	if (virtio_has_feature(disk->vdev, VIRTIO_BLK_F_RO))
		set_disk_ro(gendisk, true);
	pollux_update_capacity(disk);
	return 0;
}

static int probe(struct virtio_device *vdev)
{
	char name[DISK_NAME_LEN];
	struct pollux_disk *disk;
	int error;

	if (!is_chosen(vdev))
		return -ENODEV;
	error = pollux_check_config(vdev);
	if (error)
		return error;
	disk = kzalloc(sizeof(*disk), GFP_KERNEL);
	if (!disk)
		return -ENOMEM;
	disk->vdev = vdev;
	vdev->priv = disk;
	mutex_init(&disk->gone);
	mutex_init(&disk->switching);
	INIT_WORK(&disk->config_work, config_work);
	INIT_DELAYED_WORK(&disk->broken_work, pollux_broken);
	disk->index = find_index(vdev, name);
	if (disk->index < 0) {
		error = disk->index;
		goto free;
	}
	error = pollux_queues_alloc(disk);
	if (error)
		goto free_index;
	error = pollux_queues_find(disk);
	if (error)
		goto free_queues;
	error = alloc_tags(disk);
	if (error)
		goto del_vqs;
	error = alloc_gendisk(disk, name);
	if (error)
		goto free_tags;
	/* Partitions are looked for at once. */
	virtio_device_ready(vdev);
	error = device_add_disk(&vdev->dev, disk->gendisk, pollux_attribute_groups);
	if (error)
		goto put_disk;
	pollux_stats_add(disk);
	return 0;

put_disk:
	WRITE_ONCE(disk->removing, true);
	pollux_shut_down(disk);
	/* A disk that was not added still needs its tags here, and does not call free_disk(). */
	put_disk(disk->gendisk);
free_tags:
	blk_mq_free_tag_set(&disk->tags);
del_vqs:
	pollux_queues_close(disk);
	pollux_queues_lose(disk);
free_queues:
	pollux_queues_free(disk);
free_index:
	ida_free(&indices, disk->index);
free:
	mutex_destroy(&disk->switching);
	mutex_destroy(&disk->gone);
	kfree(disk);
	return error;
}

static void remove(struct virtio_device *vdev)
{
	struct pollux_disk *disk = vdev->priv;

	WRITE_ONCE(disk->removing, true);
	cancel_work_sync(&disk->config_work);
	pollux_stats_remove(disk);
	/* The device may not have come back from its sleep, which the virtio core does not tell. */
	pollux_wake(disk);
	pollux_watch_device(disk);
	/* Waits for all that is in flight. What a stopped task polls for, the watch completes. */
	del_gendisk(disk->gendisk);
	blk_mq_free_tag_set(&disk->tags);
	mutex_lock(&disk->gone);
	pollux_shut_down(disk);
	pollux_queues_lose(disk);
	disk->vdev = NULL;
	mutex_unlock(&disk->gone);
	put_disk(disk->gendisk);
}

static const struct virtio_device_id ids[] = {
	{ VIRTIO_ID_BLOCK, VIRTIO_DEV_ANY_ID },
	{ },
};

static unsigned int features_legacy[] = {
	VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_GEOMETRY, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_BLK_SIZE,
	VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_DISCARD,
	VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_F_SECURE_ERASE,
};

static unsigned int features[] = {
	VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_GEOMETRY, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_BLK_SIZE,
	VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_DISCARD,
	VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_F_SECURE_ERASE,
#ifdef VIRTIO_BLK_F_ZONED
	VIRTIO_BLK_F_ZONED,
#endif
};

static struct virtio_driver driver = {
	.feature_table = features,
	.feature_table_size = ARRAY_SIZE(features),
	.feature_table_legacy = features_legacy,
	.feature_table_size_legacy = ARRAY_SIZE(features_legacy),
	.driver.name = KBUILD_MODNAME,
	.driver.owner = THIS_MODULE,
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	.config_changed = config_changed,
#ifdef CONFIG_PM_SLEEP
	.freeze = pollux_freeze,
	.restore = pollux_restore,
#endif
#ifdef POLLUX_HAS_RESET
	.reset_prepare = pollux_freeze,
	.reset_done = pollux_restore,
#endif
#ifdef POLLUX_HAS_SHUTDOWN
	.shutdown = pollux_power_off,
#endif
};

static int __init pollux_blk_init(void)
{
	int error;

	if (!*prefix || strlen(prefix) > PREFIX_MOST || strchr(prefix, '/')) {
		pr_err("pollux_blk: prefix=%s: it has 1 to %u characters, and no /\n", prefix, PREFIX_MOST);
		return -EINVAL;
	}
	/* Unbound: a task that polls may keep its CPU busy. */
	pollux_workers = alloc_workqueue("pollux_blk", WQ_MEM_RECLAIM | WQ_HIGHPRI | WQ_UNBOUND, 0);
	if (!pollux_workers)
		return -ENOMEM;
	major = register_blkdev(0, "pollux_blk");
	if (major < 0) {
		error = major;
		goto workers;
	}
	pollux_stats_init();
	error = register_virtio_driver(&driver);
	if (error)
		goto blkdev;
	return 0;

blkdev:
	pollux_stats_exit();
	unregister_blkdev(major, "pollux_blk");
workers:
	destroy_workqueue(pollux_workers);
	return error;
}

static void __exit pollux_blk_exit(void)
{
	unregister_virtio_driver(&driver);
	pollux_stats_exit();
	unregister_blkdev(major, "pollux_blk");
	destroy_workqueue(pollux_workers);
}

module_init(pollux_blk_init);
module_exit(pollux_blk_exit);

/* No device table: no disk has it loaded unasked, beside virtio_blk. */
MODULE_DESCRIPTION("virtio block driver: queues that are polled and interrupt-driven at once");
MODULE_LICENSE("GPL");
