//! The one way to name an image, a volume in it and a path in that.
