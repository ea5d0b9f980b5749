"""What POSIX says of a file system, asked in the folder that is named; ends with the first answer that is wrong.

As root everything is asked, else what needs no privileges. The volume tells A from a, and its dates have whole seconds.
"""

import ctypes
import errno
import mmap
import os
import stat
import sys
import time

ROOT = os.getuid() == 0
LIBC = ctypes.CDLL(None, use_errno=True)
CURRENT = -100  # AT_FDCWD
NOREPLACE, EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE = 1, 2


def fails(code, call, *args, **named):
    """The call fails with this number."""
    try:
        call(*args, **named)
    except OSError as error:
        assert error.errno == code, f"{call.__name__}{args}: {error}, {errno.errorcode[code]} expected"
    else:
        raise AssertionError(f"{call.__name__}{args} succeeded, {errno.errorcode[code]} expected")


def write(name, text="x"):
    with open(name, "w") as file:
        file.write(text)


def read(name):
    with open(name) as file:
        return file.read()


def renameat2(old, new, flags):
    if LIBC.renameat2(CURRENT, old.encode(), CURRENT, new.encode(), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def fallocate(fd, mode, start, length):
    if LIBC.fallocate(fd, mode, ctypes.c_long(start), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def seek(fd, offset, whence):
    """The kernel tells of the last writer's end a moment after that; until then holes are not told."""
    for _ in range(100):
        try:
            return os.lseek(fd, offset, whence)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            time.sleep(0.01)
    raise AssertionError("a file that nobody writes has a writer")


def later():
    """Waits until dates are others."""
    time.sleep(1.1)


def names():
    write("file")
    os.mkdir("folder")
    write("folder/file")
    fails(errno.ENOTEMPTY, os.rmdir, "folder")
    fails(errno.EISDIR, os.unlink, "folder")
    fails(errno.ENOTDIR, os.rmdir, "file")
    fails(errno.EEXIST, os.mkdir, "folder")
    fails(errno.EEXIST, os.open, "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    fails(errno.ENOENT, os.stat, "none")
    fails(errno.ENOTDIR, os.stat, "file/below")
    fails(errno.ENAMETOOLONG, write, "n" * 256)
    fails(errno.EILSEQ, os.stat, b"\xff")
    write("n" * 255)
    os.unlink("n" * 255)
    os.symlink("t" * 1000, "symlink")
    assert os.readlink("symlink") == "t" * 1000
    fails(errno.ENAMETOOLONG, os.symlink, "t" * 1024, "other")


def links():
    os.link("file", "second")
    assert os.stat("file").st_nlink == 2 and os.stat("second").st_ino == os.stat("file").st_ino
    fails(errno.EEXIST, os.link, "file", "second")
    fails(errno.EPERM, os.link, "folder", "other")
    before = os.stat("file").st_ctime
    later()
    os.unlink("second")
    assert os.stat("file").st_nlink == 1 and os.stat("file").st_ctime > before


def without_a_name():
    fd = os.open("file", os.O_RDWR)
    os.unlink("file")
    assert os.fstat(fd).st_nlink == 0
    os.write(fd, b"still")
    assert os.pread(fd, 5, 0) == b"still" and os.fstat(fd).st_nlink == 0
    os.ftruncate(fd, 1000)
    assert os.fstat(fd).st_size == 1000
    os.close(fd)
    fails(errno.ENOENT, os.stat, "file")


def kinds():
    os.mkfifo("fifo")
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)
    os.mknod("socket", stat.S_IFSOCK | 0o600)
    assert stat.S_ISSOCK(os.stat("socket").st_mode)
    if ROOT:
        os.mknod("block", stat.S_IFBLK | 0o600, os.makedev(8, 300))
        assert os.stat("block").st_rdev == os.makedev(8, 300)


def renames():
    write("a", "a")
    write("b", "b")
    os.rename("a", "b")
    assert read("b") == "a" and not os.path.exists("a")
    os.mkdir("empty")
    fails(errno.EISDIR, os.rename, "b", "folder")
    fails(errno.ENOTDIR, os.rename, "folder", "b")
    fails(errno.ENOTEMPTY, os.rename, "empty", "folder")
    os.rename("folder", "empty")
    assert os.path.exists("empty/file")
    os.mkdir("empty/below")
    fails(errno.EINVAL, os.rename, "empty", "empty/below/itself")
    write("x")
    fails(errno.EEXIST, renameat2, "x", "b", NOREPLACE)
    renameat2("x", "y", NOREPLACE)
    assert os.path.exists("y") and not os.path.exists("x")
    fails(errno.EEXIST, renameat2, "y", "b", NOREPLACE)
    fails(errno.ENOENT, renameat2, "y", "none", EXCHANGE)
    fails(errno.EINVAL, renameat2, "empty", "empty/below", EXCHANGE)
    numbers = [os.stat(name).st_ino for name in ("y", "b", "empty/below")]
    renameat2("y", "b", EXCHANGE)
    renameat2("b", "empty/below", EXCHANGE)
    assert [os.stat(name).st_ino for name in ("empty/below", "y", "b")] == numbers
    assert os.path.isdir("b") and read("y") == "a" and sorted(os.listdir("empty")) == ["below", "file"]
    renameat2("b", "empty/below", EXCHANGE)
    renameat2("y", "b", EXCHANGE)
    assert os.path.isdir("empty/below") and read("b") == "a"


def dates_and_modes():
    os.utime("b", (1e9, 1.1e9))
    assert (os.stat("b").st_atime, os.stat("b").st_mtime) == (1e9, 1.1e9)
    fd = os.open("b", os.O_RDWR)
    os.write(fd, b"new")
    os.utime(fd, (1e9, 1e9))
    os.close(fd)
    time.sleep(3.5)  # longer than anything is held back
    assert os.stat("b").st_mtime == 1e9
    before = os.stat(".").st_mtime
    later()
    write("new")
    assert os.stat(".").st_mtime > before
    os.chmod("b", 0o4755)
    assert stat.S_IMODE(os.stat("b").st_mode) == 0o4755
    if ROOT:
        os.chown("b", 1, 2)
        assert stat.S_IMODE(os.stat("b").st_mode) == 0o755 and (os.stat("b").st_uid, os.stat("b").st_gid) == (1, 2)
        os.mkdir("group")
        os.chown("group", 0, 77)
        os.chmod("group", 0o2775)
        write("group/file")
        os.mkdir("group/folder")
        assert os.stat("group/file").st_gid == 77
        assert os.stat("group/folder").st_gid == 77 and os.stat("group/folder").st_mode & stat.S_ISGID


def attributes():
    os.setxattr("b", "user.k", b"v" * 3000)
    assert os.getxattr("b", "user.k") == b"v" * 3000 and os.listxattr("b") == ["user.k"]
    fails(errno.EEXIST, os.setxattr, "b", "user.k", b"", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, "b", "user.none", b"", os.XATTR_REPLACE)
    os.removexattr("b", "user.k")
    fails(errno.ENODATA, os.getxattr, "b", "user.k")
    os.setxattr("b", "user.com.apple.ResourceFork", b"R" * 60000)
    assert os.getxattr("b", "user.com.apple.ResourceFork") == b"R" * 60000


def lengths():
    os.truncate("b", 1 << 20)
    fd = os.open("b", os.O_RDWR)
    os.pwrite(fd, b"end", 5 << 20)
    os.fsync(fd)
    assert os.pread(fd, 4096, 3 << 20) == bytes(4096)
    os.posix_fallocate(fd, 0, 6 << 20)
    assert os.fstat(fd).st_size == 6 << 20
    os.pwrite(fd, b"D" * (1 << 20), 0)
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 4096, 65536)
    assert os.pread(fd, 4096, 8192) == bytes(4096)
    assert os.pread(fd, 1, 0) == os.pread(fd, 1, 69632) == b"D"
    os.close(fd)
    fd = os.open("b", os.O_RDONLY)
    assert seek(fd, 0, os.SEEK_HOLE) == 4096 and seek(fd, 8192, os.SEEK_DATA) == 69632
    os.close(fd)
    fd = os.open("mapped", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 10000)
    with mmap.mmap(fd, 10000) as mapped:
        mapped[5000:5005] = b"hello"
        mapped.flush()
        assert os.pread(fd, 5, 5000) == b"hello"
    os.close(fd)


def many():
    for number in range(2000):
        write(f"empty/{number}")
    assert len(os.listdir("empty")) == 2002
    for number in range(2000):
        os.unlink(f"empty/{number}")
    assert sorted(os.listdir("empty")) == ["below", "file"]
    assert os.statvfs(".").f_namemax == 255


def somebody_else():
    """What a user may not do, in a process of that user."""
    os.chmod(".", 0o777)
    child = os.fork()
    if child == 0:
        try:
            os.setgid(1000)
            os.setuid(1000)
            fails(errno.EACCES, write, "empty/denied")
            write("mine")
            assert os.stat("mine").st_uid == 1000
            fails(errno.EPERM, os.chown, "mine", 0, 0)
            os.chmod("mine", 0o6755)
            write("mine", "changed")
            assert os.stat("mine").st_mode & (stat.S_ISUID | stat.S_ISGID) == 0
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


os.umask(0o022)
os.chdir(sys.argv[1])
names()
links()
without_a_name()
kinds()
renames()
dates_and_modes()
attributes()
lengths()
many()
if ROOT:
    somebody_else()
os.chdir("/")
