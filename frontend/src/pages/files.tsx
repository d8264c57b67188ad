// page: {"order": 150, "group": "tools", "icon": "files", "en": "Files and problems", "zh": "文件与问题"}
import { Empty } from "../parts/basics";

export default function Page() {
  return <Empty title="Not built yet" />;
}
