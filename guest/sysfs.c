// SPDX-License-Identifier: GPL-2.0
/*
 * The disk's attributes: serial, cache_type.
 */
#include <linux/device.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "pollux_blk.h"

/* Asks the device for its name (VIRTIO_BLK_T_GET_ID). */
static int read_serial(struct request_queue *queue, char *serial)
{
	struct request *rq;
	int error;

	rq = blk_mq_alloc_request(queue, REQ_OP_DRV_IN, 0);
	if (IS_ERR(rq))
		return PTR_ERR(rq);
	error = compat_map_kern(rq, serial, VIRTIO_BLK_ID_BYTES);
	if (!error)
		error = blk_status_to_errno(blk_execute_rq(rq, false));
	blk_mq_free_request(rq);
	return error;
}

static ssize_t serial_show(struct device *dev, struct device_attribute *attribute, char *buffer)
{
	/* A shorter one ends with a zero. The device writes it, so it is not on the stack. */
	char *serial = kzalloc(VIRTIO_BLK_ID_BYTES + 1, GFP_KERNEL);
	ssize_t length;
	int error;

	if (!serial)
		return -ENOMEM;
	error = read_serial(dev_to_disk(dev)->queue, serial);
	serial[VIRTIO_BLK_ID_BYTES] = 0;
	/* A device may have none. */
	if (error == -EIO || error == -EOPNOTSUPP)
		length = 0;
	else
		length = error ?: sysfs_emit(buffer, "%s", serial);
	kfree(serial);
	return length;
}
static DEVICE_ATTR_RO(serial);

static const char *const cache_types[] = { "write through", "write back" };

static ssize_t cache_type_show(struct device *dev, struct device_attribute *attribute, char *buffer)
{
	struct pollux_disk *disk = dev_to_disk(dev)->private_data;
	ssize_t length = -ENODEV;

	mutex_lock(&disk->gone);
	if (disk->vdev)
		length = sysfs_emit(buffer, "%s\n", cache_types[pollux_write_cache(disk->vdev)]);
	mutex_unlock(&disk->gone);
	return length;
}

/*
 * The device does not use its cache any more: what it holds of writes that were in flight until now is to leave it
 * while the block layer still passes flushes on.
 */
static int empty_cache(struct pollux_disk *disk)
{
	struct request_queue *queue = disk->gendisk->queue;
	unsigned int flags;

	if (!virtio_has_feature(disk->vdev, VIRTIO_BLK_F_FLUSH))
		return 0;
	/* None of them is left. */
	flags = compat_freeze(queue);
	compat_unfreeze(queue, flags);
	return blkdev_issue_flush(disk->gendisk->part0);
}

/* Has the device write back or through, and the block layer flush it in the first case. */
static int switch_cache(struct pollux_disk *disk, u8 writeback)
{
	struct request_queue *queue = disk->gendisk->queue;
	bool used;
	int error;

	do {
		/* The block layer passes flushes on before the device needs them, and until its cache is empty. */
		error = compat_set_write_cache(queue, true);
		if (error)
			return error;
		virtio_cwrite(disk->vdev, struct virtio_blk_config, wce, &writeback);
		used = pollux_write_cache(disk->vdev);
		if (!used)
			error = empty_cache(disk) ?: compat_set_write_cache(queue, false);
		/* A reset meanwhile has the device use its cache as before. */
	} while (!error && used != pollux_write_cache(disk->vdev) && !fatal_signal_pending(current));
	if (pollux_write_cache(disk->vdev))
		error = compat_set_write_cache(queue, true) ?: error;
	return error;
}

static ssize_t cache_type_store(struct device *dev, struct device_attribute *attribute, const char *buffer,
				size_t length)
{
	struct pollux_disk *disk = dev_to_disk(dev)->private_data;
	int error, type = sysfs_match_string(cache_types, buffer);

	if (type < 0)
		return type;
	/* Removal takes this attribute away first, and waits for us: the device is there. */
	if (mutex_lock_interruptible(&disk->switching))
		return -ERESTARTSYS;
	error = switch_cache(disk, type);
	mutex_unlock(&disk->switching);
	return error ?: length;
}
static DEVICE_ATTR_RW(cache_type);

static struct attribute *attributes[] = {
	&dev_attr_serial.attr,
	&dev_attr_cache_type.attr,
	NULL
};

/* Only a device that offers it lets its cache be switched. */
static umode_t mode_of(struct kobject *object, struct attribute *attribute, int index)
{
	struct pollux_disk *disk = dev_to_disk(kobj_to_dev(object))->private_data;

	if (attribute == &dev_attr_cache_type.attr && !virtio_has_feature(disk->vdev, VIRTIO_BLK_F_CONFIG_WCE))
		return 0444;
	return attribute->mode;
}

static const struct attribute_group group = {
	.attrs = attributes,
	.is_visible = mode_of,
};

const struct attribute_group *pollux_attribute_groups[] = { &group, NULL };
