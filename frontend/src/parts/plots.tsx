/** Charts as SVG: drawn at once, without a library. */
