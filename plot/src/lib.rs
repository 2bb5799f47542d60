//! Pictures of series as SVG: lines, bands, thresholds, marks.
