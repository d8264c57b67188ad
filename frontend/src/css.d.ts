declare module "*.css";
declare module "styles";
