/** The same pages in one file: the tables are inside it. */
import { render } from "preact";
import "styles";
import { Shell } from "./shell";
import { setSource } from "./source";
import { isPlace } from "./state";
import { StillSource } from "./still";

const source = new StillSource();
setSource(source);
Object.assign(window, { reportSource: source }); // for whoever opens the console
if (!location.hash || !isPlace(location.hash)) location.hash = source.start;
render(<Shell />, document.getElementById("app")!);
