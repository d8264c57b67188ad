/** The same pages in one file: the tables are inside it. */
import { render } from "preact";
import "./style.css";
import { Shell } from "./shell";
import { setSource } from "./source";
import { StillSource } from "./still";

setSource(new StillSource());
render(<Shell />, document.getElementById("app")!);
