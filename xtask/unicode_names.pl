#!/usr/bin/env perl
# Writes src/fs/unicode/decompositions.rs, classes.rs and foldings.rs from Perl's Unicode character database.
#
#     perl xtask/unicode_names.pl
#
# Needs a Perl whose Unicode is 9.0 or later (5.26). Characters that came after 9.0 are left out: names on APFS volumes are
# compared by the tables of 9.0 (docs/formats/apfs.md), and what was assigned by then never changes.
use strict;
use warnings;
use Unicode::Normalize qw(NFD getCombinClass);
use Unicode::UCD qw(casefold);

my $WIDTH = 126;

sub known { return chr($_[0]) =~ /\p{Present_In: 9.0}/ && !($_[0] >= 0xD800 && $_[0] < 0xE000) }

sub array {
    my ($out, $name, $kind, $doc, @items) = @_;
    printf $out "\n/// %s\n#[rustfmt::skip]\npub(super) static %s: [%s; %d] = [\n", $doc, $name, $kind, scalar @items;
    my $line = "   ";
    for my $item (@items) {
        if (length($line) + 2 + length($item) > $WIDTH) {
            print $out "$line\n";
            $line = "   ";
        }
        $line .= " $item,";
    }
    print $out "$line\n];\n";
}

# Mappings share one pool of characters: each is (character, offset in the pool times 4, plus its length - 1).
sub packed {
    my ($pool, %mappings) = @_;
    my @items;
    for my $code (sort { $a <=> $b } keys %mappings) {
        my $mapping = $mappings{$code};
        my $at = index($$pool, $mapping);
        if ($at < 0) {
            $at = length $$pool;
            $$pool .= $mapping;
        }
        die "too long" if length $mapping > 4 || $at >= 1 << 14;
        push @items, sprintf("(0x%X, %d)", $code, $at << 2 | length($mapping) - 1);
    }
    return @items;
}

sub pool { return map { sprintf "0x%X", ord } split //, $_[0] }

sub file {
    my ($name, $what) = @_;
    open my $out, ">", "src/fs/unicode/$name.rs" or die $!;
    print $out "//! $what, from Unicode 9.0. Written by `xtask/unicode_names.pl`; do not edit.\n";
    return $out;
}

my (%decomposed, %folded, @classes);
for my $code (0x80 .. 0x1FFFF, 0x2F800 .. 0x2FA1F) {
    next if !known($code) || ($code >= 0xAC00 && $code < 0xD7A4);
    my $mapping = NFD(chr $code);
    $decomposed{$code} = $mapping if $mapping ne chr $code;
}
for my $code (0 .. 0x1FFFF) {
    next if !known($code);
    my $fold = casefold($code) or next;
    my $mapping = join "", map { chr hex } split / /, $fold->{full};
    next if $mapping eq chr $code || $decomposed{$code};
    die sprintf "%X folds to what decomposes", $code if NFD($mapping) ne $mapping;
    $folded{$code} = $mapping;
}
for my $code (0x300 .. 0x1FFFF) {
    my $class = known($code) ? getCombinClass($code) : 0;
    next if !$class;
    if (@classes && $classes[-1][1] == $code - 1 && $classes[-1][2] == $class) { $classes[-1][1] = $code }
    else { push @classes, [$code, $code, $class] }
}

my $pool = "";
my @items = packed(\$pool, %decomposed);
my $out = file("decompositions", "Canonical decompositions of names");
array($out, "DECOMPOSED", "(u32, u16)", "A character that decomposes, ascending; where its decomposition begins in [`POOL`], times 4, plus its length - 1.", @items);
array($out, "POOL", "u32", "The characters of all decompositions.", pool($pool));
$out = file("classes", "Combining classes");
array($out, "CLASSES", "(u32, u32, u8)", "First and last of a run of one combining class, ascending; all others are of class 0.",
    map { sprintf "(0x%X, 0x%X, %d)", @$_ } @classes);

$pool = "";
@items = packed(\$pool, %folded);
$out = file("foldings", "Full case foldings (C and F) of characters that do not decompose");
array($out, "FOLDED", "(u32, u16)", "A character that folds, ascending; where its folding begins in [`POOL`], times 4, plus its length - 1.", @items);
array($out, "POOL", "u32", "The characters of all foldings.", pool($pool));
