//! The packages of a release for Linux distributions: .deb and .rpm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Release, done};
use crate::root;

const MAINTAINER: &str = "The Bandsaw developers <bandsaw@users.noreply.github.com>";
const HOMEPAGE: &str = "https://github.com/bandsaw/bandsaw";
const SUMMARY: &str = "Apple disk images and the volumes in them";
const DESCRIPTION: &str = "\
 \x20Creates, opens, mounts, changes, checks, repairs and converts raw images,
 sparse images, sparse bundles, ASIF and UDIF (.dmg), and the HFS+ and APFS
 volumes in them.
";

/// The units of systemd.
const UNITS: [&str; 3] = [
    "bandsaw-health@.service",
    "bandsaw-health@.timer",
    "bandsaw-serve@.service",
];

impl Release {
    /// Puts the same files where Linux distributions keep them.
    pub(super) fn tree(&self, target: &str, files: &Path) -> Result<PathBuf> {
        let tree = self.out.join(format!("tree-{target}"));
        let share = tree.join("usr/share");
        let doc = share.join("doc/bandsaw");
        let completions = [
            ("bash", "bash-completion/completions/bandsaw"),
            ("fish", "fish/vendor_completions.d/bandsaw.fish"),
            ("zsh", "zsh/vendor-completions/_bandsaw"),
        ];
        for (shell, place) in completions {
            copy(
                &files.join(format!("completions/bandsaw.{shell}")),
                &share.join(place),
            )?;
        }
        copy(&files.join("bandsaw"), &tree.join("usr/bin/bandsaw"))?;
        for unit in UNITS {
            copy(
                &root().join(format!("packaging/systemd/{unit}")),
                &tree.join(format!("usr/lib/systemd/system/{unit}")),
            )?;
        }
        // mount(8), /etc/fstab and systemd call it for volumes of the type `bandsaw`.
        fs::create_dir_all(tree.join("usr/sbin"))?;
        std::os::unix::fs::symlink("../bin/bandsaw", tree.join("usr/sbin/mount.bandsaw"))?;
        let helper = share.join("man/man8/mount.bandsaw.8");
        fs::create_dir_all(share.join("man/man8"))?;
        fs::write(&helper, ".so man1/bandsaw-mount.1\n")?;
        done(Command::new("gzip").arg("-9n").arg(&helper))?;
        for page in fs::read_dir(files.join("man"))? {
            let page = page?;
            let place = share.join("man/man1").join(page.file_name());
            copy(&page.path(), &place)?;
            done(Command::new("gzip").arg("-9n").arg(&place))?;
        }
        copy(
            &files.join("bandsaw.cdx.json"),
            &doc.join("bandsaw.cdx.json"),
        )?;
        copy(&files.join("CHANGELOG.md"), &doc.join("NEWS.md"))?;
        done(Command::new("gzip").arg("-9n").arg(doc.join("NEWS.md")))?;
        fs::write(doc.join("copyright"), COPYRIGHT)?;
        set_modes(&tree)?;
        Ok(tree)
    }

    pub(super) fn debian_package(&self, architecture: &str, tree: &Path) -> Result<PathBuf> {
        let control = format!(
            "Package: bandsaw\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: {MAINTAINER}\nInstalled-Size: {}\nRecommends: fuse3\nSection: utils\nPriority: optional\n\
             Homepage: {HOMEPAGE}\nDescription: {SUMMARY}\n{DESCRIPTION}",
            sizes(tree)?.div_ceil(1024),
            version = self.version,
        );
        let day = self.day("-R")?;
        let changelog = format!(
            "bandsaw ({}) unstable; urgency=medium\n\n  * See NEWS.md.gz.\n\n -- {MAINTAINER}  {day}\n",
            self.version
        );
        let place = tree.join("usr/share/doc/bandsaw/changelog");
        fs::write(&place, changelog)?;
        done(Command::new("gzip").arg("-9nf").arg(&place))?;
        let overrides = tree.join("usr/share/lintian/overrides/bandsaw");
        fs::create_dir_all(overrides.parent().unwrap_or(tree))?;
        fs::write(
            &overrides,
            "# Static on purpose: one file runs on every distribution.\n\
             bandsaw: shared-library-lacks-prerequisites [usr/bin/bandsaw]\n",
        )?;
        let debian = tree.join("DEBIAN");
        fs::create_dir_all(&debian)?;
        fs::write(debian.join("control"), control)?;
        set_modes(tree)?;
        let package = self
            .out
            .join(format!("bandsaw_{}_{architecture}.deb", self.version));
        done(
            Command::new("dpkg-deb")
                .args(["--root-owner-group", "-Zxz", "--build"])
                .args([tree, &package])
                .env("SOURCE_DATE_EPOCH", &self.date)
                // The bytes would depend on the number of processors.
                .env("DPKG_DEB_THREADS_MAX", "1")
                .stdout(Stdio::null()),
        )?;
        for own in [
            debian,
            tree.join("usr/share/lintian"),
            place.with_extension("gz"),
        ] {
            match own.is_dir() {
                true => fs::remove_dir_all(own)?,
                false => fs::remove_file(own)?,
            }
        }
        Ok(package)
    }

    pub(super) fn rpm_package(&self, architecture: &str, tree: &Path) -> Result<PathBuf> {
        let day = self.day("+%a %b %d %Y")?;
        let spec = format!(
            "Name: bandsaw\nVersion: {version}\nRelease: 1\nSummary: {SUMMARY}\n\
             License: MIT OR Apache-2.0\nURL: {HOMEPAGE}\nRecommends: fuse3\n\
             Packager: {MAINTAINER}\nGroup: System/Filesystems\n\n\
             %description\n{}\n%install\ncp -a {tree}/. %{{buildroot}}\n\n\
             %files\n/usr/bin/bandsaw\n/usr/sbin/mount.bandsaw\n/usr/lib/systemd/system/bandsaw-*\n\
             %doc /usr/share/man/man1/*\n%doc /usr/share/man/man8/*\n%doc /usr/share/doc/bandsaw\n\
             /usr/share/bash-completion/completions/bandsaw\n\
             /usr/share/fish/vendor_completions.d/bandsaw.fish\n\
             /usr/share/zsh/vendor-completions/_bandsaw\n\n\
             %changelog\n* {day} {MAINTAINER} - {version}-1\n- See NEWS.md.gz.\n",
            DESCRIPTION.replace("\n ", "\n").trim_start(),
            version = self.version,
            tree = tree.display(),
        );
        let top = self.out.join("rpm");
        fs::create_dir_all(&top)?;
        fs::write(top.join("bandsaw.spec"), spec)?;
        // The host's name and the time of the build would differ; the command is stripped already.
        let defines = [
            format!("_topdir {}", top.display()),
            format!("_rpmdir {}", self.out.display()),
            "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm".into(),
            "_buildhost localhost".into(),
            "use_source_date_epoch_as_buildtime 1".into(),
            "clamp_mtime_to_source_date_epoch 1".into(),
            "_build_id_links none".into(),
            "__os_install_post %{nil}".into(),
            "debug_package %{nil}".into(),
        ];
        let mut build = Command::new("rpmbuild");
        build.args(["-bb", "--quiet", "--target", architecture]);
        for define in &defines {
            build.args(["--define", define]);
        }
        build
            .arg(top.join("bandsaw.spec"))
            .env("SOURCE_DATE_EPOCH", &self.date);
        done(&mut build).context("apt-get install rpm")?;
        let name = format!("bandsaw-{}-1.{architecture}.rpm", self.version);
        Ok(self.out.join(name))
    }
}

/// Both licenses, in the form that Debian asks for.
const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: bandsaw
Source: https://github.com/bandsaw/bandsaw

Files: *
Copyright: 2026 The Bandsaw developers
License: Apache-2.0 or Expat
 The Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.
Comment: the command contains the crates of bandsaw.cdx.json, each under its own license.

License: Expat
 Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
 associated documentation files (the \"Software\"), to deal in the Software without restriction,
 including without limitation the rights to use, copy, modify, merge, publish, distribute,
 sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
 furnished to do so, subject to the following conditions:
 .
 The above copyright notice and this permission notice shall be included in all copies or
 substantial portions of the Software.
 .
 THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
 NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
 NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
 OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
 CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
";

/// Gives files and folders the modes that packages have, whatever the umask and the clone give.
fn set_modes(tree: &Path) -> Result<()> {
    done(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(tree))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// Returns the number of bytes in the files of a folder.
fn sizes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        sum += match entry.file_type()?.is_dir() {
            true => sizes(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(sum)
}
